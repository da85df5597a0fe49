DELETE FROM org_role_memberships m USING org_roles r
WHERE r.id = m.role_id AND r.org_id = $1 AND m.role_id = $2 AND m.user_id = $3 RETURNING m.user_id

SELECT m.role_id, m.user_id, m.created_at FROM org_role_memberships m JOIN org_roles r ON r.id = m.role_id
WHERE r.org_id = $1 AND m.role_id = $2 AND ($3::uuid IS NULL OR m.user_id > $3) ORDER BY m.user_id LIMIT $4

SELECT r.slug FROM org_role_memberships m JOIN org_roles r ON r.id = m.role_id WHERE m.user_id = $2 AND r.org_id = $1

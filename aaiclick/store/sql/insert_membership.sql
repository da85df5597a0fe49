-- The user $3 gets the role $2, if both are of the org $1.
INSERT INTO org_role_memberships (role_id, user_id)
SELECT r.id, u.id FROM org_roles r JOIN users u ON u.org_id = r.org_id WHERE r.org_id = $1 AND r.id = $2 AND u.id = $3
ON CONFLICT (role_id, user_id) DO UPDATE SET created_at = org_role_memberships.created_at
RETURNING role_id, user_id, created_at

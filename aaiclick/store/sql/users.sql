-- name: insert_user
INSERT INTO users (org_id, external_id, email, role) VALUES ($1, $2, $3, $4) RETURNING id, org_id, external_id, email, role, created_at, disabled_at

-- name: list_users
SELECT id, org_id, external_id, email, role, created_at, disabled_at FROM users WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3

-- name: get_user
-- The user of the org $1 with an id or subject; a subject may look like the id of another user.
SELECT id, org_id, external_id, email, role, created_at, disabled_at FROM users
WHERE org_id = $1 AND (id::text = lower($2::text) OR external_id = $2) ORDER BY id::text = lower($2) DESC LIMIT 1

-- name: find_user_by_subject
-- The user with the subject $1.
SELECT id, org_id, external_id, email, role, created_at, disabled_at FROM users WHERE external_id = $1 AND disabled_at IS NULL

-- name: update_user
-- NULL leaves a field unchanged; an empty email removes it.
UPDATE users SET email = nullif(coalesce($3, email), ''), role = coalesce($4, role),
    disabled_at = CASE WHEN $5::bool IS NULL THEN disabled_at WHEN $5 THEN coalesce(disabled_at, now()) END
WHERE org_id = $1 AND id = $2 RETURNING id, org_id, external_id, email, role, created_at, disabled_at

-- name: delete_user
DELETE FROM users WHERE org_id = $1 AND id = $2 RETURNING id

-- name: insert_role
INSERT INTO org_roles (org_id, slug, name) VALUES ($1, $2, $3) RETURNING id, org_id, slug, name, created_at

-- name: list_roles
SELECT id, org_id, slug, name, created_at FROM org_roles WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3

-- name: get_role
-- The role of the org $1 with an id or slug; a slug may look like the id of another role.
SELECT id, org_id, slug, name, created_at FROM org_roles
WHERE org_id = $1 AND (id::text = lower($2::text) OR slug = $2) ORDER BY id::text = lower($2) DESC LIMIT 1

-- name: delete_role
-- Delete the role $2 and its read permissions, which a later role with the same slug would have otherwise.
WITH deleted AS (
    DELETE FROM org_roles WHERE org_id = $1 AND id = $2 RETURNING id, slug
),
closed AS (
    UPDATE datasets d SET read_roles = array_remove(d.read_roles, r.slug), updated_at = now() FROM deleted r
    WHERE d.org_id = $1 AND r.slug = ANY (d.read_roles)
)
SELECT id FROM deleted

-- name: insert_membership
-- Give the role $2 to the user $3, if both belong to the org $1.
WITH member AS (
    INSERT INTO org_role_memberships (role_id, user_id)
    SELECT r.id, u.id FROM org_roles r JOIN users u ON u.org_id = r.org_id WHERE r.org_id = $1 AND r.id = $2 AND u.id = $3
    ON CONFLICT (role_id, user_id) DO UPDATE SET created_at = org_role_memberships.created_at
    RETURNING role_id, user_id, created_at
)
SELECT m.role_id, m.user_id, u.external_id, m.created_at FROM member m JOIN users u ON u.id = m.user_id

-- name: list_members
SELECT m.role_id, m.user_id, u.external_id, m.created_at
FROM org_role_memberships m JOIN org_roles r ON r.id = m.role_id JOIN users u ON u.id = m.user_id
WHERE r.org_id = $1 AND m.role_id = $2 AND ($3::uuid IS NULL OR m.user_id > $3) ORDER BY m.user_id LIMIT $4

-- name: delete_membership
DELETE FROM org_role_memberships m USING org_roles r
WHERE r.id = m.role_id AND r.org_id = $1 AND m.role_id = $2 AND m.user_id = $3 RETURNING m.user_id

-- name: list_user_roles
SELECT r.slug FROM org_role_memberships m JOIN org_roles r ON r.id = m.role_id WHERE m.user_id = $2 AND r.org_id = $1

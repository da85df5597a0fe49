-- Whoever the identity provider calls $1.
SELECT id, org_id, external_id, email, role, created_at, disabled_at FROM users WHERE external_id = $1 AND disabled_at IS NULL

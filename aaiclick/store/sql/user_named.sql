-- The user of the org $1 whom its subject names, or its id; nobody else changes it until the transaction ends.
SELECT id, org_id, external_id, email, role, created_at, disabled_at FROM users
WHERE org_id = $1 AND (external_id = $2::text OR id::text = $2) ORDER BY external_id = $2 DESC LIMIT 1 FOR NO KEY UPDATE

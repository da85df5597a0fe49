-- name: set_secret
-- Create or replace the secret $2 of the org $1.
INSERT INTO org_secrets (org_id, name, host, ciphertext, key_id) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (org_id, name) DO UPDATE SET host = excluded.host, ciphertext = excluded.ciphertext,
    key_id = excluded.key_id, updated_at = now()
RETURNING name, host, created_at, updated_at

-- name: get_secret
SELECT org_id, name, host, ciphertext, key_id FROM org_secrets WHERE org_id = $1 AND name = $2

-- name: list_secrets
-- Secrets of the org $1 after the name $2 (NULL: from the first), at most $3; never their ciphertexts.
SELECT name, host, created_at, updated_at FROM org_secrets
WHERE org_id = $1 AND ($2::text IS NULL OR name > $2) ORDER BY name LIMIT $3

-- name: delete_secret
DELETE FROM org_secrets WHERE org_id = $1 AND name = $2 RETURNING name

-- name: list_secret_key_ids
SELECT DISTINCT key_id FROM org_secrets ORDER BY key_id

-- name: lock_secrets
-- All secrets, locked for re-encryption.
SELECT org_id, name, host, ciphertext, key_id FROM org_secrets ORDER BY org_id, name FOR UPDATE

-- name: reencrypt_secret
UPDATE org_secrets SET ciphertext = $3, key_id = $4 WHERE org_id = $1 AND name = $2

-- name: load_task_secrets
-- Secrets that the attempt $2 of the task $1 may read with the lease $3; no row: the lease is lost. `secrets` of a task
-- of a definition maps its names to those of the organisation; other tasks may read all of them.
SELECT t.org_id, o.slug, t.definition_id IS NOT NULL AS is_of_definition, d.spec -> 'secrets' AS secrets,
    d.spec ->> 'operator' AS operator, d.spec -> 'config' ->> 'url' AS url
FROM tasks t JOIN orgs o ON o.id = t.org_id
LEFT JOIN job_definitions d ON d.id = t.definition_id AND d.org_id = t.org_id
WHERE t.id = $1 AND t.attempt = $2 AND t.lease_token = $3

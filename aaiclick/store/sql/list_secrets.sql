-- Secrets of the org $1 after the name $2 (NULL: from the first), at most $3; never their ciphertexts.
SELECT name, host, created_at, updated_at FROM org_secrets
WHERE org_id = $1 AND ($2::text IS NULL OR name > $2) ORDER BY name LIMIT $3

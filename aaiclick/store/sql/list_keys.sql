-- Keys of the org $1 after the id $2 (NULL: from the first), at most $3; never their hashes.
SELECT id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at FROM api_keys
WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3

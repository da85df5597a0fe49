-- The key of the org $1 that its prefix names, or its id; never its hash.
SELECT id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at FROM api_keys
WHERE org_id = $1 AND (prefix = $2::text OR id::text = $2)

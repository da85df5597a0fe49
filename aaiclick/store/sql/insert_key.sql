INSERT INTO api_keys (org_id, user_id, name, prefix, key_hash, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7::float8))
RETURNING id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at

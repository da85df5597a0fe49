UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE org_id = $1 AND id = $2
RETURNING id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at

-- name: insert_key
INSERT INTO api_keys (org_id, user_id, name, prefix, key_hash, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7::float8))
RETURNING id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at

-- name: find_active_key
-- The key with the prefix $1, if it is active; the caller compares its hash.
SELECT k.id, k.org_id, k.user_id, k.prefix, k.key_hash, k.scopes,
    k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute' AS stale
FROM api_keys k LEFT JOIN users u ON u.id = k.user_id
WHERE k.prefix = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()) AND u.disabled_at IS NULL

-- name: touch_key
UPDATE api_keys SET last_used_at = now() WHERE id = $1

-- name: list_keys
-- Keys of the org $1 after the id $2 (NULL: from the first), at most $3; never their hashes.
SELECT id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at FROM api_keys
WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3

-- name: get_key
-- The key of the org $1 with a prefix or id (their lengths differ), without its hash.
SELECT id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at FROM api_keys
WHERE org_id = $1 AND (prefix = $2::text OR id::text = lower($2))

-- name: revoke_key
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now())
WHERE org_id = $1 AND (prefix = $2::text OR id::text = lower($2))
RETURNING id, org_id, user_id, name, prefix, scopes, created_at, last_used_at, expires_at, revoked_at

-- name: has_keys
SELECT EXISTS (SELECT FROM api_keys)

-- name: lock_first_key
SELECT pg_advisory_xact_lock(hashtext('aaiclick first key'))

-- name: insert_session
INSERT INTO ui_sessions (token_hash, key_id, user_id, expires_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4))

-- name: find_session
-- The holder of the session with the hash $1, while its key or user is valid.
SELECT coalesce(k.org_id, u.org_id) AS org_id, k.prefix, k.scopes, s.user_id, u.role
FROM ui_sessions s
LEFT JOIN api_keys k ON k.id = s.key_id
LEFT JOIN users u ON u.id = coalesce(s.user_id, k.user_id)
WHERE s.token_hash = $1 AND s.expires_at > now() AND u.disabled_at IS NULL
  AND (s.key_id IS NULL OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))

-- name: delete_session
DELETE FROM ui_sessions WHERE token_hash = $1

-- name: delete_expired_sessions
DELETE FROM ui_sessions WHERE expires_at < now()

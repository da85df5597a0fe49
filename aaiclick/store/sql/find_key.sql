-- The key of the prefix $1, if it can be used at all; its hash decides whether the caller has it.
SELECT k.id, k.org_id, k.user_id, k.prefix, k.key_hash, k.scopes,
    k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute' AS stale
FROM api_keys k LEFT JOIN users u ON u.id = k.user_id
WHERE k.prefix = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()) AND u.disabled_at IS NULL

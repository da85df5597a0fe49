-- Who the session with the hash $1 stands for, as long as what it was opened with still opens anything.
SELECT coalesce(k.org_id, u.org_id) AS org_id, k.prefix, k.scopes, s.user_id, u.role
FROM ui_sessions s
LEFT JOIN api_keys k ON k.id = s.key_id
LEFT JOIN users u ON u.id = coalesce(s.user_id, k.user_id)
WHERE s.token_hash = $1 AND s.expires_at > now() AND u.disabled_at IS NULL
  AND (s.key_id IS NULL OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))

INSERT INTO ui_sessions (token_hash, org_id, key_id, user_id, expires_at)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))

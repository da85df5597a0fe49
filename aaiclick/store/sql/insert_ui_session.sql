INSERT INTO ui_sessions (token_hash, key_id, user_id, expires_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4))

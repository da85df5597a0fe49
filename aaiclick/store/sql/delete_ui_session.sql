DELETE FROM ui_sessions WHERE token_hash = $1

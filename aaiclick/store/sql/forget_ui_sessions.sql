DELETE FROM ui_sessions WHERE expires_at < now()

-- The session $1 lives.
INSERT INTO table_sessions (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET seen_at = now()

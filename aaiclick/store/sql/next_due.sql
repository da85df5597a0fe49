-- Seconds until the next task that waits for its time is due; nothing if none waits.
SELECT extract(epoch FROM min(available_at) - now())::float8 FROM tasks WHERE readiness = 'TIME'

SELECT min(available_at) FROM tasks WHERE readiness = 'TIME'

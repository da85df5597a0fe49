INSERT INTO task_types (org_id, name, paused_at) VALUES ($1, $2, now())
ON CONFLICT (org_id, name) DO UPDATE SET paused_at = coalesce(task_types.paused_at, now())

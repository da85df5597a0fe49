-- How long tasks of the type $2 wait before they are tried again; NULL: as long as all others.
INSERT INTO task_types (org_id, name, retry_policy) VALUES ($1, $2, $3::jsonb)
ON CONFLICT (org_id, name) DO UPDATE SET retry_policy = excluded.retry_policy, updated_at = now()

-- A paused DAG stays paused when a version with more jobs begins to serve.
INSERT INTO task_types (org_id, name, paused_at)
SELECT d.org_id, d.dag_name || '.' || d.name, c.paused_at
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 AND c.dag_name = $2 AND c.paused_at IS NOT NULL
ON CONFLICT (org_id, name) DO UPDATE SET paused_at = coalesce(task_types.paused_at, excluded.paused_at)

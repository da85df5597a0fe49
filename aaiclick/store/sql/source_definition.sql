-- A source of the version of a DAG that serves: by name, or the only one there is.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.source, d.spec, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime,
    d.operator, (d.scaling ->> 'max_concurrency')::int AS max_concurrency, c.paused_at IS NOT NULL AS paused
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id AND d.activation = 'source'
WHERE c.org_id = $1 AND c.dag_name = $2 AND ($3::text IS NULL OR d.name = $3)
ORDER BY d.name

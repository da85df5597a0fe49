-- The definitions of the version of the DAG $2 that serves, with their states.
SELECT d.name, d.activation, d.operator, d.source ->> 'kind' AS source, d.status::text, d.next_run_at, d.last_event_at,
    d.last_heartbeat, c.paused_at
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 AND c.dag_name = $2 ORDER BY d.name

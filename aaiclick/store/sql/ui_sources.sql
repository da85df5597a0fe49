-- Sources of what serves in the org $1, at most $2 after $3 of them; the last run is that of any version of the DAG.
SELECT d.id, d.name, d.dag_name, d.source, d.status::text, d.next_run_at, d.last_event_at, d.last_heartbeat,
    c.paused_at, r.id AS run_id, r.status::text AS run_status, r.created_at AS run_at
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
LEFT JOIN LATERAL (
    SELECT j.id, j.status, j.created_at FROM job_definitions o CROSS JOIN LATERAL (
        SELECT j.id, j.status, j.created_at FROM jobs j WHERE j.definition_id = o.id ORDER BY j.id DESC LIMIT 1) AS j
    WHERE o.org_id = d.org_id AND o.dag_name = d.dag_name AND o.name = d.name ORDER BY j.id DESC LIMIT 1
) AS r ON true
WHERE c.org_id = $1 AND d.activation = 'source' ORDER BY d.next_run_at NULLS LAST, d.dag_name, d.name LIMIT $2 OFFSET $3

-- DAGs of the org $1 that serve, at most $2 after $3 of them.
SELECT c.dag_name, c.dag_version_id, c.serving_since, c.paused_at, v.yaml_hash,
    (SELECT count(*) FROM dag_versions o WHERE o.org_id = $1 AND o.dag_name = c.dag_name) AS versions,
    (SELECT count(*) FROM job_definitions d WHERE d.dag_version_id = c.dag_version_id) AS definitions,
    r.id AS run_id, r.status::text AS run_status, r.created_at AS run_at
FROM dag_current_versions c JOIN dag_versions v ON v.id = c.dag_version_id
LEFT JOIN LATERAL (
    SELECT j.id, j.status, j.created_at FROM dag_versions o CROSS JOIN LATERAL (
        SELECT j.id, j.status, j.created_at FROM jobs j WHERE j.dag_version_id = o.id ORDER BY j.id DESC LIMIT 1) AS j
    WHERE o.org_id = c.org_id AND o.dag_name = c.dag_name ORDER BY j.id DESC LIMIT 1
) AS r ON true
WHERE c.org_id = $1 ORDER BY c.dag_name LIMIT $2 OFFSET $3

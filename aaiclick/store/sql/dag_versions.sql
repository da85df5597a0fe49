-- Every version of a DAG (of all, if no name is given), the newest first.
SELECT v.id, v.dag_name, v.yaml_hash, v.created_at, v.ready_at, c.dag_version_id IS NOT NULL AS serving, c.serving_since,
    c.paused_at, v.fill_job_id, j.status::text AS fill_status
FROM dag_versions v
LEFT JOIN jobs j ON j.id = v.fill_job_id
LEFT JOIN dag_current_versions c ON c.org_id = v.org_id AND c.dag_name = v.dag_name AND c.dag_version_id = v.id
WHERE v.org_id = $1 AND ($2::text IS NULL OR v.dag_name = $2)
ORDER BY v.dag_name, v.created_at DESC, v.id

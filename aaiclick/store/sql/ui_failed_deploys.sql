-- The last deploy of each DAG of the org $1 (of the DAG $2, if it is named) whose datasets were not filled, unless a later deploy serves;
-- at most $3, the newest first.
SELECT * FROM (
    SELECT DISTINCT ON (v.dag_name) v.dag_name, v.yaml_hash, j.id, j.status::text, j.error, j.completed_at,
        c.dag_version_id IS NOT NULL AS serving
    FROM dag_versions v
    JOIN jobs j ON j.id = v.fill_job_id AND j.status IN ('FAILED', 'CANCELLED')
    LEFT JOIN dag_current_versions c ON c.org_id = v.org_id AND c.dag_name = v.dag_name
    WHERE v.org_id = $1 AND v.ready_at IS NULL AND ($2::text IS NULL OR v.dag_name = $2)
      AND j.completed_at > coalesce(c.serving_since, '-infinity')
    ORDER BY v.dag_name, j.completed_at DESC) AS failed
ORDER BY completed_at DESC LIMIT $3

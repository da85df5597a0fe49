-- Pause or resume a DAG; returns the types of its tasks, of all its versions.
WITH changed AS (
    UPDATE dag_current_versions SET paused_at = CASE WHEN $3 THEN coalesce(paused_at, now()) END
    WHERE org_id = $1 AND dag_name = $2 RETURNING org_id, dag_name
)
SELECT DISTINCT d.dag_name || '.' || d.name AS type FROM changed c
JOIN job_definitions d ON d.org_id = c.org_id AND d.dag_name = c.dag_name ORDER BY 1

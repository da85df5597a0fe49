-- Datasets that are served in the org $1: those that one of the roles $2 may read (NULL: all), or the one $3 of them;
-- at most $4 (NULL: all) after $5 of them.
SELECT d.id, d.name, d.producer_dag_name, d.producer_job_name, d.storage, d.read_roles, v.id AS version,
    v.storage_location, v.config_hash, v.created_at, v.columns, v.files, v.rows, v.updated_at,
    (SELECT count(*) FROM dataset_versions o WHERE o.dataset_uuid = d.id) AS versions
FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid AND d.producer_dag_name = c.dag_name
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE c.org_id = $1 AND ($2::text[] IS NULL OR d.read_roles && $2::text[]) AND ($3::uuid IS NULL OR d.id = $3)
ORDER BY d.name LIMIT $4 OFFSET $5

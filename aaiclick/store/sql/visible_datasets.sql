-- The datasets that are served in the org $1: those that one of the roles $2 may read (NULL: all), of the names $3 (NULL: any).
SELECT d.id, d.name, d.producer_dag_name, d.producer_job_name, d.producer_output_index, d.read_roles, v.id AS version,
    v.storage_location, v.columns, v.files, v.rows, v.ticket, v.schema_hash, v.updated_at, v.created_at, c.dag_version_id
FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid AND d.producer_dag_name = c.dag_name
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE c.org_id = $1 AND ($2::text[] IS NULL OR d.read_roles && $2::text[])
  AND ($3::text[] IS NULL OR d.name = ANY ($3::text[]))
ORDER BY d.name

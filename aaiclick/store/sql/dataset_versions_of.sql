-- Every generation of a dataset, the newest first, and which version of the DAG serves it.
SELECT v.id, v.created_at, v.updated_at, v.rows, v.schema_hash, v.ticket, v.storage_location, v.range_start, v.range_end, EXISTS (
    SELECT FROM dag_version_datasets p JOIN dag_current_versions c ON c.dag_version_id = p.dag_version_id
    WHERE p.dataset_version = v.id) AS serving
FROM dataset_versions v WHERE v.dataset_uuid = $1 ORDER BY v.created_at DESC, v.id

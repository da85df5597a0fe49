-- What the version that serves gives to readers: all of it in one snapshot.
SELECT d.id, d.name, d.producer_job_name, d.producer_output_index, d.read_roles, v.id AS version, v.storage_location,
    v.config_hash, v.created_at
FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE c.org_id = $1 AND c.dag_name = $2
ORDER BY d.name

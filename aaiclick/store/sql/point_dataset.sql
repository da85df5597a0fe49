INSERT INTO dag_version_datasets (dag_version_id, dataset_uuid, dataset_version) VALUES ($1, $2, $3)
ON CONFLICT (dag_version_id, dataset_uuid) DO NOTHING

SELECT d.producer_job_name, d.producer_output_index
FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid WHERE v.dag_version_id = $1

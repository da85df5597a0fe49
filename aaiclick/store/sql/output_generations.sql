-- The generations that the definition $1 makes.
SELECT p.dataset_version FROM job_definitions d
JOIN dag_version_datasets p ON p.dag_version_id = d.dag_version_id AND p.dataset_uuid = ANY (d.output_datasets::uuid[])
WHERE d.id = $1 ORDER BY p.dataset_version

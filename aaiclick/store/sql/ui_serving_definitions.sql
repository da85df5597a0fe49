SELECT d.id, d.name, d.dag_name, d.operator, d.status::text, d.input_datasets, d.output_datasets
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 ORDER BY d.dag_name, d.name LIMIT 2000

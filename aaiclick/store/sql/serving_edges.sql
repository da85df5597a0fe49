-- Which datasets are made from which, by the definitions that serve.
SELECT d.dag_name, d.name AS job, coalesce(d.input_datasets, '{}') AS inputs, coalesce(d.output_datasets, '{}') AS outputs
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id WHERE c.org_id = $1

UPDATE dag_versions SET fill_job_id = $2 WHERE id = $1

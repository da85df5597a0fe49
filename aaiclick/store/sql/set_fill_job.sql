UPDATE dag_versions SET fill_job_id = $2, filled_beside = $3 WHERE id = $1

SELECT v.ready_at, v.fill_job_id, v.filled_beside, v.deploy_ticket, j.status::text AS fill_status, j.error AS fill_error
FROM dag_versions v LEFT JOIN jobs j ON j.id = v.fill_job_id WHERE v.id = $1

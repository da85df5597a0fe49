-- Groups of the job $1 that could not complete because of the tasks $2 may complete after all.
UPDATE groups SET failed_at = NULL, cause_id = NULL WHERE job_id = $1 AND cause_id = ANY ($2::bigint[])

-- How many tasks of the job $1 are at work: those of all jobs are few, so they are looked through.
WITH live AS MATERIALIZED (SELECT job_id FROM tasks WHERE status IN ('CLAIMED', 'RUNNING'))
SELECT count(*) FROM live WHERE job_id = $1

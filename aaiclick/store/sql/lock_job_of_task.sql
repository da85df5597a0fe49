-- Share the graph lock of the job of the task $1: a cancel of the job takes it alone, before it locks tasks.
SELECT pg_advisory_xact_lock_shared(t.job_id) FROM (SELECT job_id FROM tasks WHERE id = $1 AND job_id IS NOT NULL OFFSET 0) AS t

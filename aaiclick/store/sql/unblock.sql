-- The task $1, which has no job, waits for nothing but a worker or a slot.
UPDATE tasks SET readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness
WHERE id = $1 RETURNING org_id, concurrency_key, queue, readiness::text

-- Let go what was set aside while the org's ($1) type $2 or the job $3 was paused. What has a concurrency key lines up
-- for a slot instead; what is paused for another reason is set aside again by the claim that meets it.
UPDATE tasks SET readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness,
    updated_at = now()
WHERE readiness = 'HELD' AND org_id = $1 AND ($2::text IS NULL OR type = $2) AND ($3::bigint IS NULL OR job_id = $3)
RETURNING org_id, concurrency_key, queue, readiness::text

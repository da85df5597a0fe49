-- name: pause_job
UPDATE jobs SET paused_at = coalesce(paused_at, now()) WHERE id = $1 AND completed_at IS NULL RETURNING id

-- name: pause_org
UPDATE orgs SET paused_at = coalesce(paused_at, now()) WHERE id = $1 RETURNING id

-- name: pause_queue
INSERT INTO queues (org_id, name, paused_at) VALUES ($1, $2, now())
ON CONFLICT (org_id, name) DO UPDATE SET paused_at = coalesce(queues.paused_at, now())

-- name: pause_type
INSERT INTO task_types (org_id, name, paused_at) VALUES ($1, $2, now())
ON CONFLICT (org_id, name) DO UPDATE SET paused_at = coalesce(task_types.paused_at, now())

-- name: resume_job
UPDATE jobs SET paused_at = NULL WHERE id = $1 RETURNING org_id

-- name: resume_org
UPDATE orgs SET paused_at = NULL WHERE id = $1 RETURNING id

-- name: resume_queue
UPDATE queues SET paused_at = NULL WHERE org_id = $1 AND name = $2

-- name: resume_type
UPDATE task_types SET paused_at = NULL WHERE org_id = $1 AND name = $2

-- name: set_queue
-- Set weight and limits of the queue $2 of the org $1; its token bucket is reset.
INSERT INTO queues (org_id, name, weight, max_running, rate_per_second, rate_burst) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (org_id, name) DO UPDATE SET weight = excluded.weight, max_running = excluded.max_running,
    rate_per_second = excluded.rate_per_second, rate_burst = excluded.rate_burst, rate_tokens = NULL, rate_at = NULL

-- name: set_retry_policy
-- Set the retry policy of the type $2; NULL removes it.
INSERT INTO task_types (org_id, name, retry_policy) VALUES ($1, $2, $3::jsonb)
ON CONFLICT (org_id, name) DO UPDATE SET retry_policy = excluded.retry_policy, updated_at = now()

-- name: list_task_types
-- Task types with settings, of the org $1 (NULL: all).
SELECT o.slug AS org, t.name, t.retry_policy, t.paused_at FROM task_types t JOIN orgs o ON o.id = t.org_id
WHERE (t.retry_policy IS NOT NULL OR t.paused_at IS NOT NULL) AND ($1::uuid IS NULL OR t.org_id = $1)
ORDER BY o.slug, t.name

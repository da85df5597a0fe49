-- The worker $1 lives, and has meanwhile finished tasks of the queues $3 of the orgs $2: $4 of them completed, $5 failed. In order, so
-- that workers that count the same queues wait for each other in one.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[]) AS g (org_id, queue, completed, failed)
),
counted AS (
    INSERT INTO queue_minutes (org_id, queue, minute, completed, failed)
    SELECT org_id, queue, date_trunc('minute', now()), completed, failed FROM given ORDER BY org_id, queue
    ON CONFLICT (org_id, queue, minute) DO UPDATE SET completed = queue_minutes.completed + excluded.completed,
        failed = queue_minutes.failed + excluded.failed
)
UPDATE workers SET last_heartbeat = now(), tasks_completed = tasks_completed + coalesce((SELECT sum(completed) FROM given), 0),
    tasks_failed = tasks_failed + coalesce((SELECT sum(failed) FROM given), 0)
WHERE id = $1 AND status <> 'STOPPED'

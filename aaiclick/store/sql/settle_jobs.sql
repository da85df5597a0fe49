-- Count what became of tasks of the jobs $1: $2 completed, $3 failed, $4 were cancelled (below zero: came back). The job
-- ends with its last task, and lives again when one comes back. $6 says which failure it was; the first one stays.
-- $7 events were emitted for it: it goes on until they are routed.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $6::text[], $7::int[])
        AS g (id, completed, failed, cancelled, cause, events)
),
locked AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE
)
UPDATE jobs j SET
    open_tasks = j.open_tasks - g.completed - g.failed - g.cancelled,
    failed_tasks = j.failed_tasks + g.failed, cancelled_tasks = j.cancelled_tasks + g.cancelled,
    open_events = j.open_events + g.events, error = coalesce(j.error, g.cause),
    started_at = CASE WHEN g.completed > 0 OR g.failed > 0 THEN coalesce(j.started_at, now()) ELSE j.started_at END,
    status = CASE
        WHEN j.open_tasks > g.completed + g.failed + g.cancelled OR j.open_events + g.events > 0 THEN
            CASE WHEN j.started_at IS NOT NULL OR g.completed > 0 OR g.failed > 0 THEN 'RUNNING' ELSE 'PENDING' END
        WHEN j.failed_tasks + g.failed > 0 OR j.error IS NOT NULL THEN 'FAILED'
        WHEN j.cancelled_tasks + g.cancelled > 0 THEN 'CANCELLED'
        ELSE 'COMPLETED' END::job_status,
    restarted_at = CASE WHEN j.completed_at IS NOT NULL AND j.open_tasks > g.completed + g.failed + g.cancelled
        THEN coalesce($5::timestamptz, now()) ELSE j.restarted_at END,
    completed_at = CASE WHEN j.open_tasks <= g.completed + g.failed + g.cancelled AND j.open_events + g.events = 0
        THEN coalesce($5::timestamptz, now()) END,
    updated_at = coalesce($5::timestamptz, now())
FROM given g WHERE j.id = g.id AND j.id = ANY (ARRAY(SELECT id FROM locked))
RETURNING j.id, j.status::text

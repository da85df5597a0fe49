-- The jobs $1 have $2 more tasks, and $3 fewer events to route; one without either has ended.
WITH given AS (SELECT * FROM unnest($1::bigint[], $2::int[], $3::int[]) AS g (id, tasks, events)),
locked AS MATERIALIZED (SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE)
UPDATE jobs j SET total_tasks = j.total_tasks + g.tasks, open_tasks = j.open_tasks + g.tasks,
    open_events = j.open_events - g.events, updated_at = now(),
    started_at = coalesce(j.started_at, now()),
    status = CASE
        WHEN j.open_tasks + g.tasks > 0 OR j.open_events > g.events THEN 'RUNNING'
        WHEN j.failed_tasks > 0 OR j.error IS NOT NULL THEN 'FAILED'
        WHEN j.cancelled_tasks > 0 OR j.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
        ELSE 'COMPLETED' END::job_status,
    completed_at = CASE WHEN j.open_tasks + g.tasks = 0 AND j.open_events = g.events THEN now() END
FROM given g WHERE j.id = g.id AND j.id = ANY (ARRAY(SELECT id FROM locked))

-- I6: counters equal a recount, and a job's status is a function of its tasks.
WITH met AS (
    SELECT d.next_id, d.next_type, count(*) FILTER (WHERE CASE d.previous_type
        WHEN 'task' THEN p.status IS DISTINCT FROM 'COMPLETED' AND NOT coalesce(p.passed_over, false) ELSE q.completed_at IS NULL END)::int AS unmet
    FROM dependencies d
    LEFT JOIN tasks p ON d.previous_type = 'task' AND p.id = d.previous_id
    LEFT JOIN groups q ON d.previous_type = 'group' AND q.id = d.previous_id
    GROUP BY d.next_id, d.next_type
),
member AS (
    SELECT id, sum(open)::int AS open FROM (
        SELECT group_id AS id, count(*) AS open FROM tasks
        WHERE group_id IS NOT NULL AND status <> 'COMPLETED' AND NOT passed_over GROUP BY group_id
        UNION ALL
        SELECT parent_group_id, count(*) FROM groups
        WHERE parent_group_id IS NOT NULL AND completed_at IS NULL GROUP BY parent_group_id) AS parts GROUP BY id
),
tally AS (
    SELECT job_id, count(*) AS total, count(*) FILTER (WHERE completed_at IS NULL) AS open,
        count(*) FILTER (WHERE completed_at IS NOT NULL AND status IN ('FAILED', 'DEAD_LETTER') AND NOT passed_over) AS failed,
        count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled
    FROM tasks WHERE job_id IS NOT NULL GROUP BY job_id
)
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'unmet is ' || t.unmet || ', counted ' || coalesce(m.unmet, 0) AS finding
    FROM tasks t LEFT JOIN met m ON m.next_id = t.id WHERE t.unmet <> coalesce(m.unmet, 0)
    UNION ALL
    SELECT 'task', t.id, 'dependents exist, and it does not say so' FROM tasks t
    WHERE NOT t.followed AND EXISTS (SELECT FROM dependencies d WHERE d.previous_id = t.id)
    UNION ALL
    SELECT 'task', t.id, t.readiness || ' in a closed group' FROM tasks t JOIN groups g ON g.id = t.group_id
    WHERE t.readiness IN ('READY', 'TIME', 'HELD') AND g.unmet > 0
    UNION ALL
    SELECT 'group', g.id, 'unmet is ' || g.unmet || ', counted ' || coalesce(m.unmet, 0) + (coalesce(p.unmet, 0) > 0)::int
    FROM groups g LEFT JOIN met m ON m.next_id = g.id LEFT JOIN groups p ON p.id = g.parent_group_id
    WHERE g.unmet <> coalesce(m.unmet, 0) + (coalesce(p.unmet, 0) > 0)::int
    UNION ALL
    SELECT 'group', g.id, 'open is ' || g.open || ', counted ' || coalesce(m.open, 0)
    FROM groups g LEFT JOIN member m ON m.id = g.id WHERE g.open <> coalesce(m.open, 0)
    UNION ALL
    SELECT 'group', g.id, 'complete by its counters, and not so marked' FROM groups g
    WHERE g.unmet = 0 AND g.open = 0 AND g.completed_at IS NULL AND g.failed_at IS NULL
    UNION ALL
    SELECT 'job', j.id, 'counts ' || concat_ws('/', j.total_tasks, j.open_tasks, j.failed_tasks, j.cancelled_tasks)
        || ', counted ' || concat_ws('/', coalesce(y.total, 0), coalesce(y.open, 0), coalesce(y.failed, 0),
            coalesce(y.cancelled, 0))
    FROM jobs j LEFT JOIN tally y ON y.job_id = j.id
    WHERE (j.total_tasks, j.open_tasks, j.failed_tasks, j.cancelled_tasks)
        <> (coalesce(y.total, 0), coalesce(y.open, 0), coalesce(y.failed, 0), coalesce(y.cancelled, 0))
    UNION ALL
    SELECT 'job', j.id, 'is ' || j.status || ', its tasks say otherwise' FROM jobs j
    WHERE j.status <> (CASE
        WHEN j.open_tasks > 0 OR j.open_events > 0 THEN CASE WHEN j.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END
        WHEN j.failed_tasks > 0 OR j.error IS NOT NULL THEN 'FAILED'
        WHEN j.cancelled_tasks > 0 THEN 'CANCELLED'
        -- cancelled while only its events were left, which then are routed to nobody; jobs of DAGs alone have any
        WHEN j.status = 'CANCELLED' AND j.cancel_requested_at IS NOT NULL AND j.dag_version_id IS NOT NULL THEN 'CANCELLED'
        ELSE 'COMPLETED' END)::job_status
) AS found
LIMIT 100

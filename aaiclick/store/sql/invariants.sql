-- name: check_i1_progress
-- I1: every unfinished task waits for something that will happen.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'blocked, though nothing stands in its way' AS finding FROM tasks t
    LEFT JOIN groups g ON g.id = t.group_id
    WHERE t.readiness = 'BLOCKED' AND t.unmet = 0 AND coalesce(g.unmet, 0) = 0
    UNION ALL
    SELECT 'task', t.id, 'waits for task ' || p.id || ', which ended ' || p.status FROM tasks t
    JOIN dependencies d ON d.next_id = t.id AND d.previous_type = 'task' JOIN tasks p ON p.id = d.previous_id
    WHERE t.readiness = 'BLOCKED' AND d.next_type = 'task' AND p.completed_at IS NOT NULL AND p.status <> 'COMPLETED'
      AND NOT p.passed_over AND NOT (p.status = 'SKIPPED' AND (coalesce(t.trigger_rule = 'any', false) OR coalesce(p.added_by = t.id, false)))
    UNION ALL
    SELECT 'task', t.id, 'waits for group ' || g.id || ', which cannot complete' FROM tasks t
    JOIN dependencies d ON d.next_id = t.id AND d.previous_type = 'group' JOIN groups g ON g.id = d.previous_id
    WHERE t.readiness = 'BLOCKED' AND (g.failed_at IS NOT NULL OR (g.skipped_at IS NOT NULL AND t.trigger_rule IS NULL))
    UNION ALL
    SELECT 'task', t.id, 'held, though its key has a free slot or no date and nothing is paused' FROM tasks t
    LEFT JOIN jobs j ON j.id = t.job_id
    WHERE t.readiness = 'HELD' AND j.paused_at IS NULL
      AND NOT EXISTS (SELECT FROM task_types y WHERE y.org_id = t.org_id AND y.name = t.type AND y.paused_at IS NOT NULL)
      AND NOT (t.rate IS NOT NULL AND t.concurrency_key IS NULL AND EXISTS (SELECT FROM rate_limits r
          WHERE r.org_id = t.org_id AND r.key = coalesce(t.rate_key, t.type) AND r.next_at IS NOT NULL))
      AND (t.concurrency_key IS NULL OR NOT EXISTS (
          SELECT FROM tasks o WHERE o.org_id = t.org_id AND o.concurrency_key = t.concurrency_key
            -- A task above its rate has given its slot back and waits for the rate: it admits others when it is due.
            AND (o.readiness = 'READY' OR o.status IN ('CLAIMED', 'RUNNING') OR (o.readiness = 'TIME' AND o.rate IS NOT NULL))))
    UNION ALL
    SELECT 'task', t.id, 'lease ran out ' || round(extract(epoch FROM now() - t.lease_expires_at)) || ' s ago' FROM tasks t
    WHERE t.status IN ('CLAIMED', 'RUNNING') AND t.lease_expires_at < now() - $1::float8 * interval '1 second'
    UNION ALL
    SELECT 'task', t.id, 'due since ' || round(extract(epoch FROM now() - t.available_at)) || ' s and not ready' FROM tasks t
    WHERE t.readiness = 'TIME' AND t.available_at < now() - $1::float8 * interval '1 second'
    UNION ALL
    SELECT 'org', 0, 'rate key ' || r.key || ' due since ' || round(extract(epoch FROM now() - r.next_at)) || ' s'
    FROM rate_limits r WHERE r.next_at < now() - $1::float8 * interval '1 second'
    UNION ALL
    SELECT 'task', t.id, 'waits for event ' || w.name || ', which was sent' FROM waits w
    JOIN tasks t ON t.id = w.task_id AND t.attempt = w.attempt AND t.readiness = 'TIME'
    WHERE w.wait_type = 'event' AND EXISTS (
        SELECT FROM workflow_events e WHERE e.org_id = w.org_id AND e.name = w.name AND e.key = w.key
          AND e.created_at >= w.began_at AND e.expires_at > now())
    UNION ALL
    SELECT 'task', t.id, 'waits for job ' || w.job_id || ', which has ended' FROM waits w
    JOIN tasks t ON t.id = w.task_id AND t.attempt = w.attempt AND t.readiness = 'TIME'
    WHERE w.wait_type = 'job' AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = w.job_id AND j.completed_at IS NULL)
    UNION ALL
    SELECT 'task', t.id, CASE WHEN a.id IS NULL THEN 'waits for a decision without a question'
        ELSE 'waits for a decision that was made' END FROM waits w
    JOIN tasks t ON t.id = w.task_id AND t.attempt = w.attempt AND t.readiness = 'TIME'
    LEFT JOIN approvals a ON a.task_id = w.task_id AND a.attempt = w.attempt
    WHERE w.wait_type = 'approval' AND (a.id IS NULL OR a.decision IS NOT NULL)
    UNION ALL
    SELECT 'job', j.id, 'goes on, though its parent job ' || p.id || ' was cancelled' FROM jobs j
    JOIN jobs p ON p.id = j.parent_job_id LEFT JOIN tasks t ON t.id = j.parent_task_id
    WHERE j.completed_at IS NULL AND j.cancel_requested_at IS NULL AND j.restarted_at IS NULL
      AND p.cancel_requested_at >= j.created_at
      AND (t.cancel_requested_at IS NOT NULL OR NOT coalesce((
          -- Handlers and what they added go on after the cancellation of their job.
          WITH RECURSIVE adders (id, added_by, is_handler) AS (
              SELECT t.id, t.added_by, t.trigger_rule IN ('failed', 'ended')
              UNION ALL
              SELECT p.id, p.added_by, p.trigger_rule IN ('failed', 'ended') FROM adders a JOIN tasks p ON p.id = a.added_by)
          SELECT bool_or(is_handler) FROM adders), false))
    UNION ALL
    SELECT 'job', j.id, 'unfinished, though all its tasks have ended' FROM jobs j
    WHERE j.completed_at IS NULL AND j.open_tasks = 0 AND j.open_events = 0
) AS found
LIMIT 100

-- name: check_i2_leases
-- I2: at most one live lease per task (the row has room for one), and attempts only rise.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'attempt ' || max(a.attempt) || ' is recorded, the task says ' || t.attempt AS finding
    FROM task_attempts a JOIN tasks t ON t.id = a.task_id
    GROUP BY t.id, t.attempt HAVING max(a.attempt) > t.attempt
    UNION ALL
    SELECT 'task', t.id, 'attempt ' || t.attempt || ' is recorded as over and still has a lease'
    FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.attempt = t.attempt
    WHERE t.status IN ('CLAIMED', 'RUNNING')
) AS found
LIMIT 100

-- name: check_i3_outcomes
-- I3: one outcome per attempt (the key of task_attempts), and the attempt that succeeded has no other.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'attempt ' || t.attempt || ' is recorded as ' || a.outcome || ', the task is COMPLETED'
        AS finding
    FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.attempt = t.attempt
    WHERE t.status = 'COMPLETED'
) AS found
LIMIT 100

-- name: check_i4_order
-- I4: nothing starts before its predecessors have completed; a handler waits for their end, and a join with the rule
-- `any` for their completion or skip. Tasks that a task returned end after it began. claimed_at is the start of the
-- claim's transaction, slightly before its snapshot: hence a tolerance of a second.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'began before ' || d.previous_type || ' ' || d.previous_id || ' completed' AS finding
    FROM tasks t JOIN dependencies d ON d.next_id = t.id
    LEFT JOIN tasks p ON d.previous_type = 'task' AND p.id = d.previous_id
    LEFT JOIN groups q ON d.previous_type = 'group' AND q.id = d.previous_id
    WHERE t.status IN ('CLAIMED', 'RUNNING', 'COMPLETED') AND NOT coalesce(p.passed_over, false)
      AND (CASE WHEN d.next_type = 'handler' THEN p.completed_at IS NULL
               WHEN d.previous_type = 'task' THEN p.status IS DISTINCT FROM 'COMPLETED'
                   AND NOT (p.status = 'SKIPPED' AND (coalesce(t.trigger_rule = 'any', false) OR coalesce(p.added_by = t.id, false)))
               ELSE q.completed_at IS NULL AND NOT (q.skipped_at IS NOT NULL AND coalesce(t.trigger_rule = 'any', false)) END
           OR (t.claimed_at < coalesce(p.completed_at, q.completed_at) - interval '1 second' AND p.added_by IS DISTINCT FROM t.id))
    UNION ALL
    -- Predecessors may be CANCELLED by a timeout of the job; its error is gone when another task was cleared since.
    SELECT 'task', t.id, 'runs on failures, and no predecessor has failed' FROM tasks t LEFT JOIN jobs j ON j.id = t.job_id
    WHERE t.trigger_rule = 'failed' AND t.status IN ('CLAIMED', 'RUNNING') AND j.error IS NULL AND NOT EXISTS (
        SELECT FROM dependencies d JOIN tasks p ON p.id = d.previous_id
        WHERE d.next_id = t.id AND p.completed_at IS NOT NULL AND p.status IN ('FAILED', 'DEAD_LETTER', 'CANCELLED'))
    UNION ALL
    SELECT 'task', t.id, 'began before its group ' || g.id || ' opened' FROM tasks t JOIN groups g ON g.id = t.group_id
    WHERE t.status IN ('CLAIMED', 'RUNNING', 'COMPLETED') AND g.unmet > 0
) AS found
LIMIT 100

-- name: check_i5_keys
-- I5: one task per idempotency key.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, min(id) AS id, count(*) || ' tasks have the key ' || idempotency_key AS finding FROM tasks
    WHERE idempotency_key IS NOT NULL GROUP BY org_id, type, idempotency_key HAVING count(*) > 1
) AS found
LIMIT 100

-- name: check_i6_counters
-- I6: counters equal a recount, and a job's status is a function of its tasks.
WITH met AS (
    SELECT d.next_id, d.next_type, count(*) FILTER (WHERE CASE
        WHEN d.next_type = 'handler' THEN p.completed_at IS NULL
        WHEN d.previous_type = 'task' THEN p.status IS DISTINCT FROM 'COMPLETED' AND NOT coalesce(p.passed_over, false)
            AND NOT (p.status = 'SKIPPED' AND (coalesce(n.trigger_rule = 'any', false) OR coalesce(p.added_by = n.id, false)))
        ELSE q.completed_at IS NULL AND NOT (q.skipped_at IS NOT NULL AND coalesce(n.trigger_rule = 'any', false)) END)::int AS unmet
    FROM dependencies d LEFT JOIN tasks n ON d.next_type <> 'group' AND n.id = d.next_id
    LEFT JOIN tasks p ON d.previous_type = 'task' AND p.id = d.previous_id
    LEFT JOIN groups q ON d.previous_type = 'group' AND q.id = d.previous_id
    GROUP BY d.next_id, d.next_type
),
member AS (
    SELECT id, sum(open)::int AS open FROM (
        SELECT group_id AS id, count(*) AS open FROM tasks
        WHERE group_id IS NOT NULL AND status NOT IN ('COMPLETED', 'SKIPPED') AND NOT passed_over GROUP BY group_id
        UNION ALL
        SELECT parent_group_id, count(*) FROM groups
        WHERE parent_group_id IS NOT NULL AND num_nonnulls(completed_at, skipped_at) = 0 GROUP BY parent_group_id) AS parts GROUP BY id
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
    WHERE NOT t.has_dependents AND EXISTS (SELECT FROM dependencies d WHERE d.previous_id = t.id)
    UNION ALL
    SELECT 'task', t.id, t.readiness || ' in a closed group' FROM tasks t JOIN groups g ON g.id = t.group_id
    WHERE t.readiness IN ('READY', 'TIME', 'HELD') AND g.unmet > 0
    UNION ALL
    SELECT 'group', g.id, 'unmet is ' || g.unmet || ', counted ' || coalesce(m.unmet, 0) + (coalesce(p.unmet, 0) > 0 OR p.skipped_at IS NOT NULL)::int
    FROM groups g LEFT JOIN met m ON m.next_id = g.id LEFT JOIN groups p ON p.id = g.parent_group_id
    WHERE g.unmet <> coalesce(m.unmet, 0) + (coalesce(p.unmet, 0) > 0 OR p.skipped_at IS NOT NULL)::int
    UNION ALL
    SELECT 'group', g.id, 'open is ' || g.open || ', counted ' || coalesce(m.open, 0)
    FROM groups g LEFT JOIN member m ON m.id = g.id WHERE g.open <> coalesce(m.open, 0)
    UNION ALL
    SELECT 'group', g.id, 'complete by its counters, and not so marked' FROM groups g
    WHERE g.unmet = 0 AND g.open = 0 AND num_nonnulls(g.completed_at, g.failed_at, g.skipped_at) = 0
    UNION ALL
    SELECT 'group', g.id, 'was skipped, and task ' || t.id || ' in it waits' FROM groups g JOIN tasks t ON t.group_id = g.id
    WHERE g.skipped_at IS NOT NULL AND t.readiness IS NOT NULL
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
        -- cancelled with open events only, which are then not routed; only jobs of DAGs have events
        WHEN j.status = 'CANCELLED' AND j.cancel_requested_at IS NOT NULL AND j.dag_version_id IS NOT NULL THEN 'CANCELLED'
        ELSE 'COMPLETED' END)::job_status
) AS found
LIMIT 100

-- name: check_i7_tables
-- I7: the refcount of a table is the sum of its references; only live attempts have references, and only completed
-- tasks have literals.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'table' AS kind, CASE WHEN c.table_name ~ '^t[0-9]{1,18}$' THEN substr(c.table_name, 2)::bigint ELSE 0 END AS id,
        format('%s counts %s references and has %s', c.table_name, c.refcount, coalesce(r.refs, 0)) AS finding
    FROM table_refcounts c LEFT JOIN (
        SELECT table_name, sum(refs) AS refs FROM table_references GROUP BY table_name) r USING (table_name)
    WHERE c.refcount <> coalesce(r.refs, 0)
    UNION ALL
    SELECT 'task', r.owner_id, format('attempt %s is over and still refers to %s', r.attempt, r.table_name)
    FROM table_references r LEFT JOIN tasks t ON t.id = r.owner_id AND t.attempt = r.attempt AND t.lease_token IS NOT NULL
    WHERE r.owner = 'ATTEMPT' AND t.id IS NULL
    UNION ALL
    SELECT 'task', t.id, 'it has a literal and is ' || t.status || ', or its result is no Object' FROM tasks t
    WHERE t.literal IS NOT NULL AND (t.status <> 'COMPLETED' OR t.result ->> 'table_id' IS NULL)
) AS found
LIMIT 100

-- name: check_i9_events
-- I9: the open events of a job equal its unrouted events, and none is pending for long. A Failed event is no violation:
-- doctor shows it separately.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'job' AS kind, j.id, format('it counts %s events that wait, and there are %s', j.open_events, o.waiting) AS finding
    FROM jobs j CROSS JOIN LATERAL (
        SELECT count(*) AS waiting FROM outbox o WHERE o.job_id = j.id AND o.status IN ('Pending', 'Processing')) AS o
    WHERE (j.completed_at IS NULL OR j.open_events > 0) AND j.open_events <> o.waiting
    UNION ALL
    SELECT 'event', o.id, 'it has waited for a router since ' || o.created_at
    FROM outbox o WHERE o.status = 'Pending' AND o.kind = 'route_event' AND greatest(o.created_at, o.available_at)
      < now() - interval '1 second' * $1::float8
    UNION ALL
    -- No foreign key: its check would be a fifth of the cost of routing, and definitions are never deleted.
    SELECT 'task', t.id, format('its definition %s is not there', t.definition_id)
    FROM tasks t WHERE t.definition_id IS NOT NULL AND NOT EXISTS (SELECT FROM job_definitions d WHERE d.id = t.definition_id)
) AS found
LIMIT 100

-- name: check_i10_leaders
-- I10: leaders' terms never overlap: at most one worker leads, and its term is the newest.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'worker' AS kind, w.id, 'leads beside another' AS finding FROM workers w
    WHERE w.is_leader AND EXISTS (SELECT FROM workers o WHERE o.is_leader AND o.id <> w.id)
    UNION ALL
    SELECT 'worker', w.id, 'leads by term ' || w.leader_term || ', and a later one was given out' FROM workers w
    WHERE w.is_leader AND w.leader_term < (SELECT max(leader_term) FROM workers)
) AS found
LIMIT 100

-- name: check_i11_tenants
-- I11: nothing crosses tenants: a task has the org of its job, its definition, its worker and its predecessors, and a
-- reference that of its table, a child job that of its parent, and a wait that of its task. Groups and events have the orgs of their jobs by foreign keys.
WITH node AS (
    SELECT id, org_id FROM tasks
    UNION ALL
    SELECT g.id, j.org_id FROM groups g JOIN jobs j ON j.id = g.job_id
)
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, format('of org %s, in job %s of org %s', t.org_id, j.id, j.org_id) AS finding
    FROM tasks t JOIN jobs j ON j.id = t.job_id WHERE j.org_id <> t.org_id
    UNION ALL
    SELECT 'task', t.id, format('of org %s, by definition %s of org %s', t.org_id, d.id, d.org_id)
    FROM tasks t JOIN job_definitions d ON d.id = t.definition_id WHERE d.org_id <> t.org_id
    UNION ALL
    SELECT 'task', t.id, format('of org %s, taken by worker %s of org %s', t.org_id, w.id, w.org_id)
    FROM tasks t JOIN workers w ON w.id = t.worker_id WHERE w.org_id <> t.org_id
    UNION ALL
    SELECT d.next_type::text, d.next_id, format('of org %s, waits for %s %s of org %s', n.org_id, d.previous_type, p.id, p.org_id)
    FROM dependencies d JOIN node n ON n.id = d.next_id JOIN node p ON p.id = d.previous_id WHERE n.org_id <> p.org_id
    UNION ALL
    SELECT 'task', t.id, format('of org %s, holds %s of org %s', t.org_id, c.table_name, c.org_id)
    FROM table_references r JOIN table_refcounts c USING (table_name) JOIN tasks t ON t.id = r.owner_id
    WHERE r.owner IN ('ATTEMPT', 'RESULT', 'TASK') AND c.org_id <> t.org_id
    UNION ALL
    SELECT 'job', j.id, format('of org %s, submitted by task %s of org %s', j.org_id, t.id, t.org_id)
    FROM jobs j JOIN tasks t ON t.id = j.parent_task_id WHERE t.org_id <> j.org_id
    UNION ALL
    SELECT 'task', t.id, format('of org %s, waits for people or events of org %s', t.org_id, w.org_id)
    FROM tasks t JOIN (
        SELECT task_id, org_id FROM waits UNION ALL SELECT task_id, org_id FROM approvals
        UNION ALL SELECT a.task_id, l.org_id FROM approval_links l JOIN approvals a ON a.id = l.approval_id) AS w
    ON w.task_id = t.id WHERE w.org_id <> t.org_id
    UNION ALL
    SELECT 'job', j.id, format('of org %s, holds %s of org %s', j.org_id, c.table_name, c.org_id)
    FROM table_references r JOIN table_refcounts c USING (table_name) JOIN jobs j ON j.id = r.job_id
    WHERE c.org_id <> j.org_id
) AS found
LIMIT 100

-- name: check_i12_attempts
-- I12: charged failures never exceed the limit, poison tasks become dead letters, and uncharged ends are delayed and
-- limited: see MAX_RELEASES in `leases_and_outcomes`: its values are repeated here.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, t.failures || ' of ' || t.max_attempts || ' attempts failed, and it is to be tried again'
        AS finding
    FROM tasks t WHERE t.failures >= t.max_attempts AND t.completed_at IS NULL
    UNION ALL
    SELECT 'task', t.id, r.times || ' attempts in a row ended uncharged within ' || round(r.seconds)
        || ' s, and it is to be tried again'
    FROM tasks t CROSS JOIN LATERAL (
        SELECT count(*) AS times, coalesce(extract(epoch FROM max(a.ended_at) - min(a.ended_at)), 0) AS seconds,
            count(a.started_at) AS started
        FROM task_attempts a WHERE a.task_id = t.id AND a.attempt > coalesce((
            SELECT max(c.attempt) FROM task_attempts c WHERE c.task_id = t.id AND c.charged), 0)) r
    WHERE t.completed_at IS NULL AND t.attempt - t.failures > 20
      -- For longer than allowed, or hundreds without a delay.
      AND ((r.started > 21 AND r.seconds BETWEEN 2 * 86400 AND 3600 * r.times)
        OR (r.times >= 200 AND r.seconds < 60 * r.times))
) AS found
LIMIT 100

-- name: check_i13_flow
-- I13: no more jobs of a name run than allowed, turns wait for unfinished jobs, no window of a rate has more starts than
-- allowed, a schedule starts one job per nominal time, and compensations undo the step first that completed last.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'job' AS kind, min(j.id) AS id, format('%s jobs named %s run, %s may', count(*), j.name, max(j.concurrency)) AS finding
    FROM jobs j WHERE j.completed_at IS NULL AND j.concurrency IS NOT NULL AND NOT EXISTS (
        SELECT FROM tasks t WHERE t.job_id = j.id AND t.type = 'wait_for_turn' AND t.status <> 'COMPLETED'
          AND t.kwargs ->> 'job_id' IS NOT NULL)
    GROUP BY j.org_id, j.name HAVING count(*) > max(j.concurrency)
    UNION ALL
    SELECT 'task', t.id, format('waits for its turn after job %s, and for no unfinished one', t.kwargs ->> 'job_id')
    FROM tasks t WHERE t.type = 'wait_for_turn' AND t.readiness = 'TIME' AND t.status = 'PENDING'
      AND t.kwargs ? 'aaiclick_wait' AND NOT t.kwargs -> 'aaiclick_wait' ? 'job' AND NOT EXISTS (
        SELECT FROM waits w JOIN jobs j ON j.id = w.job_id WHERE w.task_id = t.id AND j.completed_at IS NULL)
    UNION ALL
    SELECT 'task', s.id, format('is the %s. start of rate %s for key %s within %s s', s.allowed + 1, s.rate, s.key, s.seconds)
    FROM (
        SELECT r.*, lag(r.claimed_at, r.allowed) OVER (PARTITION BY r.org_id, r.key, r.rate ORDER BY r.claimed_at, r.id) AS earlier
        FROM (
            SELECT t.id, t.org_id, coalesce(t.rate_key, t.type) AS key, t.rate, t.claimed_at,
                split_part(t.rate, '/', 1)::int AS allowed, split_part(t.rate, '/', 2)::float8 AS seconds
            FROM tasks t WHERE t.rate IS NOT NULL AND t.claimed_at IS NOT NULL) AS r
    ) AS s WHERE s.claimed_at < s.earlier + s.seconds * interval '1 second'
    UNION ALL
    SELECT 'job', max(j.id), format('%s jobs of schedule %s have the nominal time %s', count(*), j.schedule_id, j.trigger ->> 'nominal')
    FROM jobs j WHERE j.schedule_id IS NOT NULL AND j.trigger ->> 'kind' IN ('schedule', 'backfill')
    GROUP BY j.schedule_id, j.trigger ->> 'nominal' HAVING count(*) > 1
    UNION ALL
    SELECT 'task', n.id, format('undoes step %s after step %s, which completed earlier', s.id, q.id)
    FROM tasks c JOIN tasks n ON n.added_by = c.id JOIN dependencies d ON d.next_id = n.id
    JOIN tasks p ON p.id = d.previous_id AND p.added_by = c.id
    JOIN tasks s ON s.job_id = c.job_id AND s.id::text = n.kwargs -> 'result' ->> 'task_id'
    JOIN tasks q ON q.job_id = c.job_id AND q.id::text = p.kwargs -> 'result' ->> 'task_id'
    WHERE c.entrypoint = 'aaiclick.orchestration.compensation.run_compensations'
      AND s.completed_at < n.claimed_at AND q.completed_at < p.claimed_at  -- they have not run again since
      AND (s.completed_at, s.id) > (q.completed_at, q.id)
) AS found
LIMIT 100

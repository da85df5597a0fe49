-- name: claim_tasks
-- Claim up to $2 tasks of the queues $3 (empty: all) for worker $1, if only one lane has ready tasks. Tasks of
-- `runtime:…` queues are claimed only by workers that name the queue; `runtime:dispatcher` by all workers with a
-- database connection.
--
-- A lane is a queue of an org. With several lanes, with limits or with anything paused, the statement returns one row
-- without an id, and `claim_tasks_fair` is used instead: an installation with one org pays two probes of the ready
-- index for fairness. One other lane that this worker may not claim, a runtime's for example, is skipped by a third
-- probe: the fair statement costs twice as much.
--
-- `id = ANY (ARRAY(…))` and not a join: whatever the planner's estimate of the table size, it can only be evaluated by
-- the primary key. A claim that is lost in a crash was never returned to a worker, so its commit is asynchronous.
WITH clock AS MATERIALIZED (
    SELECT coalesce($6::timestamptz, now()) AS now, set_config('synchronous_commit', 'off', true)
),
lane AS MATERIALIZED (
    SELECT f.org_id, f.queue,
        (n.queue IS NULL OR (n.elsewhere AND NOT EXISTS (
            SELECT FROM tasks t WHERE t.readiness = 'READY' AND (t.org_id, t.queue) > (n.org_id, n.queue))))
        AND CASE WHEN $3::text[] <> '{}' THEN f.queue = ANY ($3::text[])
            ELSE NOT starts_with(f.queue, 'runtime:') OR f.queue = 'runtime:dispatcher' END
        AND EXISTS (SELECT FROM orgs o WHERE o.id = f.org_id AND o.paused_at IS NULL AND o.max_running IS NULL
            AND o.rate_per_second IS NULL)
        AND NOT EXISTS (SELECT FROM queues q WHERE q.org_id = f.org_id AND q.name = f.queue
            AND num_nonnulls(q.paused_at, q.max_running, q.rate_per_second) > 0)
        AND NOT EXISTS (SELECT FROM task_types WHERE paused_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM jobs WHERE paused_at IS NOT NULL) AS alone
    FROM (SELECT t.org_id, t.queue FROM tasks t WHERE t.readiness = 'READY' ORDER BY t.org_id, t.queue LIMIT 1) f
    LEFT JOIN LATERAL (
        SELECT t.org_id, t.queue, CASE WHEN $3::text[] <> '{}' THEN t.queue <> ALL ($3::text[])
            ELSE starts_with(t.queue, 'runtime:') AND t.queue <> 'runtime:dispatcher' END AS elsewhere
        FROM tasks t WHERE t.readiness = 'READY' AND (t.org_id, t.queue) > (f.org_id, f.queue)
        ORDER BY t.org_id, t.queue LIMIT 1) n ON true
),
chosen AS MATERIALIZED (
    SELECT c.id FROM lane l CROSS JOIN LATERAL (
        SELECT t.id FROM tasks t
        WHERE t.readiness = 'READY' AND t.org_id = l.org_id AND t.queue = l.queue
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
        LIMIT $2::int FOR NO KEY UPDATE SKIP LOCKED) c
    WHERE l.alone
),
taken AS (
    UPDATE tasks SET status = 'CLAIMED', readiness = NULL, attempt = attempt + 1, worker_id = $1, lease_token = $5,
        lease_expires_at = (SELECT now FROM clock) + coalesce(lease_seconds, $4::float8) * interval '1 second',
        claimed_at = (SELECT now FROM clock), last_heartbeat = (SELECT now FROM clock), started_at = NULL,
        updated_at = (SELECT now FROM clock),
        log_path = (SELECT w.log_directory FROM workers w WHERE w.id = $1) || '/' || id || '.log'
    WHERE id = ANY (ARRAY(SELECT id FROM chosen))
    RETURNING id, attempt, org_id, job_id, group_id, type, entrypoint, kwargs, timeout_seconds, failures, retry_policy,
        has_dependents OR group_id IS NOT NULL OR concurrency_key IS NOT NULL AS linked,
        coalesce(error_fingerprint = 'worker crashed', false) AS suspect, priority, queue, lease_seconds
),
-- Locked: another transaction starts the job.
first AS MATERIALIZED (
    SELECT j.id FROM jobs j
    WHERE j.id = ANY (ARRAY(SELECT DISTINCT job_id FROM taken WHERE job_id IS NOT NULL)) AND j.status = 'PENDING'
    FOR NO KEY UPDATE SKIP LOCKED
),
started AS (
    UPDATE jobs SET status = 'RUNNING', started_at = (SELECT now FROM clock), updated_at = (SELECT now FROM clock),
        deadline_at = (SELECT now FROM clock) + timeout_seconds * interval '1 second'
    WHERE id = ANY (ARRAY(SELECT id FROM first))
)
(SELECT id, attempt, org_id, job_id, group_id, type, entrypoint, kwargs, timeout_seconds, failures, retry_policy,
    linked, suspect, queue, lease_seconds, priority,
    (SELECT count(*) > 1 FROM (SELECT FROM orgs LIMIT 2) o) AS shared,
    EXISTS (SELECT FROM tasks t WHERE t.readiness = 'TIME' AND t.available_at <= (SELECT now FROM clock)) AS due
 FROM taken ORDER BY priority DESC, COALESCE(job_id, id), id)
UNION ALL
SELECT NULL, 0, NULL, NULL, NULL, '', NULL, NULL, NULL, 0, NULL, false, false, NULL, NULL, 0::smallint, true, false FROM lane WHERE NOT alone

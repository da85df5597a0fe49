-- name: claim_tasks
-- Claim up to $2 tasks of the queues $3 (empty: all) for worker $1, if only one lane has ready tasks. Tasks of
-- `runtime:…` queues are claimed only by workers that name the queue; `runtime:dispatcher` by all workers with a
-- database connection; those of `runtime:version:…` queues by workers with that version of the code.
--
-- A lane is a queue of an org. With several lanes, with limits or with anything paused, the statement returns one row
-- without an id, and `claim_tasks_fair` is used instead: an installation with one org pays two probes of the ready
-- index for fairness. One other lane that this worker may not claim, a runtime's for example, is skipped by a third
-- probe: the fair statement costs twice as much. Tasks above the rate of
-- their key are left to it as well.
--
-- `id = ANY (ARRAY(…))` and not a join: whatever the planner's estimate of the table size, it can only be evaluated by
-- the primary key. A claim that is lost in a crash has had no effect, so its commit is asynchronous, unless it makes
-- earlier commits of the session durable ($7).
WITH clock AS MATERIALIZED (
    SELECT coalesce($6::timestamptz, now()) AS now,
        CASE WHEN NOT $7::boolean THEN set_config('synchronous_commit', 'off', true) END
),
lane AS MATERIALIZED (
    SELECT f.org_id, f.queue,
        (n.queue IS NULL OR (n.elsewhere AND NOT EXISTS (
            SELECT FROM tasks t WHERE t.readiness = 'READY' AND (t.org_id, t.queue) > (n.org_id, n.queue))))
        AND (CASE WHEN $3::text[] <> '{}' THEN f.queue = ANY ($3::text[])
            ELSE NOT starts_with(f.queue, 'runtime:') OR f.queue = 'runtime:dispatcher' END
            OR (starts_with(f.queue, 'runtime:version:') AND aaiclick_serves_version($1, f.queue, $3::text[])))
        AND EXISTS (SELECT FROM orgs o WHERE o.id = f.org_id AND o.paused_at IS NULL AND o.max_running IS NULL
            AND o.rate_per_second IS NULL)
        AND NOT EXISTS (SELECT FROM queues q WHERE q.org_id = f.org_id AND q.name = f.queue
            AND num_nonnulls(q.paused_at, q.max_running, q.rate_per_second) > 0)
        AND NOT EXISTS (SELECT FROM task_types WHERE paused_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM jobs WHERE paused_at IS NOT NULL) AS alone
    FROM (SELECT t.org_id, t.queue FROM tasks t WHERE t.readiness = 'READY' ORDER BY t.org_id, t.queue LIMIT 1) f
    LEFT JOIN LATERAL (
        SELECT t.org_id, t.queue, CASE WHEN $3::text[] <> '{}' THEN t.queue <> ALL ($3::text[])
            ELSE starts_with(t.queue, 'runtime:') AND t.queue <> 'runtime:dispatcher' END
            AND NOT (starts_with(t.queue, 'runtime:version:') AND aaiclick_serves_version($1, t.queue, $3::text[])) AS elsewhere
        FROM tasks t WHERE t.readiness = 'READY' AND (t.org_id, t.queue) > (f.org_id, f.queue)
        ORDER BY t.org_id, t.queue LIMIT 1) n ON true
),
chosen AS MATERIALIZED (
    SELECT c.id, l.org_id, c.rate, c.rate_key FROM lane l CROSS JOIN LATERAL (
        SELECT t.id, t.rate, coalesce(t.rate_key, t.type) AS rate_key FROM tasks t
        WHERE t.readiness = 'READY' AND t.org_id = l.org_id AND t.queue = l.queue
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
        LIMIT $2::int FOR NO KEY UPDATE SKIP LOCKED) c
    WHERE l.alone
),
charged AS MATERIALIZED (
    SELECT d.rate_key, d.rate FROM (
        SELECT org_id, rate_key, rate, count(*)::int AS tasks FROM chosen WHERE rate IS NOT NULL
        GROUP BY org_id, rate_key, rate ORDER BY rate_key, rate) d
    CROSS JOIN LATERAL aaiclick_charge_rate(d.org_id, d.rate_key, d.rate, d.tasks, true, (SELECT now FROM clock)) AS c
    WHERE c.granted = d.tasks
),
taken AS (
    UPDATE tasks SET status = 'CLAIMED', readiness = NULL, attempt = attempt + 1, worker_id = $1, lease_token = $5,
        lease_expires_at = (SELECT now FROM clock) + coalesce(lease_seconds, $4::float8) * interval '1 second',
        claimed_at = (SELECT now FROM clock), last_heartbeat = (SELECT now FROM clock), started_at = NULL,
        updated_at = (SELECT now FROM clock)
    WHERE id = ANY (ARRAY(
        SELECT id FROM chosen WHERE rate IS NULL OR (rate_key, rate) IN (SELECT rate_key, rate FROM charged)))
    RETURNING id, attempt, org_id, job_id, group_id, type, entrypoint, kwargs, timeout_seconds, failures, retry_policy,
        has_dependents OR group_id IS NOT NULL OR concurrency_key IS NOT NULL AS linked,
        num_nonnulls(group_id, concurrency_key, added_by) > 0 AS grouped,
        coalesce(error_fingerprint = 'worker crashed', false) AS suspect, priority, queue, lease_seconds,
        max_attempts = 1 AND NOT repeatable AS runs_once
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
    linked, suspect, queue, lease_seconds, priority, grouped, runs_once,
    (SELECT count(*) > 1 FROM (SELECT FROM orgs LIMIT 2) o) AS shared,
    EXISTS (SELECT FROM tasks t WHERE t.readiness = 'TIME' AND t.available_at <= (SELECT now FROM clock))
        OR EXISTS (SELECT FROM rate_limits r WHERE r.next_at <= (SELECT now FROM clock)) AS due
 FROM taken ORDER BY priority DESC, COALESCE(job_id, id), id)
UNION ALL
SELECT NULL, 0, NULL, NULL, NULL, '', NULL, NULL, NULL, 0, NULL, false, false, NULL, NULL, 0::smallint, false, false, true, false
FROM lane WHERE NOT alone
    OR EXISTS (SELECT FROM chosen WHERE rate IS NOT NULL AND (rate_key, rate) NOT IN (SELECT rate_key, rate FROM charged))

-- name: claim_tasks_fair
-- Claim up to $2 tasks of the queues $3 (empty: all) for worker $1; only those of the org $7, if given. Tasks of
-- `runtime:…` queues are claimed only by workers that name the queue; `runtime:dispatcher` by workers without an org.
--
-- A lane is a queue of an org with ready tasks. Lanes are found by a skip scan of the ready index, one probe each,
-- starting at a random org, at most 64: the cost depends on the number of lanes, not of tasks. A single lane gets
-- everything. Several share by weight: the k-th task of a lane has the virtual time (k - r) / weight with a random r,
-- and the earliest are taken. No state is kept between claims, so r must be fair in each: uniform when many are
-- claimed; for a single task, the first of several exponential waiting times selects each lane in proportion to its
-- weight. An org's share is the sum of its lanes; within it the highest priority comes first, whatever its queue.
--
-- Limits count tasks, so claims under one limit must not overlap: its row is locked, and the lane is skipped if the row
-- is locked already or if the last claim under the limit is not yet visible to this one.
--
-- The rate of a key is charged by `aaiclick_charge_rate`. Tasks above the rate are set to HELD, and `admit_rated_tasks`
-- makes them ready again at `next_at`; those with a concurrency key wait for that time instead.
--
-- A pass that finds only paused tasks and tasks above their rate holds up to 1,000 others like them.
--
-- A claim that is lost in a crash has had no effect, so its commit is asynchronous, unless it makes earlier commits of
-- the session durable ($8).
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce($6::timestamptz, now()) AS now, coalesce($7::uuid, gen_random_uuid()) AS start,
           CASE WHEN NOT $8::boolean THEN set_config('synchronous_commit', 'off', true) END
),
above (org_id, queue, hop) AS (
    SELECT f.org_id, f.queue, 1 FROM (
        SELECT t.org_id, t.queue FROM tasks t WHERE t.readiness = 'READY' AND t.org_id >= (SELECT start FROM clock)
        ORDER BY t.org_id, t.queue LIMIT 1) f
    WHERE $7::uuid IS NULL OR f.org_id = $7
    UNION ALL
    SELECT n.org_id, n.queue, a.hop + 1 FROM above a CROSS JOIN LATERAL (
        SELECT t.org_id, t.queue FROM tasks t
        WHERE t.readiness = 'READY' AND (t.org_id, t.queue) > (a.org_id, a.queue)
        ORDER BY t.org_id, t.queue LIMIT 1) n
    WHERE a.hop < 64 AND ($7::uuid IS NULL OR n.org_id = $7)
),
below (org_id, queue, hop) AS (
    (SELECT t.org_id, t.queue, 1 FROM tasks t
     WHERE $7::uuid IS NULL AND t.readiness = 'READY' AND t.org_id < (SELECT start FROM clock)
     ORDER BY t.org_id, t.queue LIMIT 1)
    UNION ALL
    SELECT n.org_id, n.queue, b.hop + 1 FROM below b CROSS JOIN LATERAL (
        SELECT t.org_id, t.queue FROM tasks t
        WHERE t.readiness = 'READY' AND (t.org_id, t.queue) > (b.org_id, b.queue)
          AND t.org_id < (SELECT start FROM clock)
        ORDER BY t.org_id, t.queue LIMIT 1) n
    WHERE b.hop < 64
),
lane AS MATERIALIZED (
    SELECT l.org_id, l.queue, CASE WHEN $2::int = 1 THEN 1 + ln(1 - random()) ELSE random() END AS luck,
           o.max_running IS NOT NULL OR o.rate_per_second IS NOT NULL AS org_limited,
           q.max_running IS NOT NULL OR q.rate_per_second IS NOT NULL AS queue_limited,
           o.weight * coalesce(q.weight, 1)::float8 / sum(coalesce(q.weight, 1)) OVER (PARTITION BY l.org_id) AS weight
    FROM (SELECT org_id, queue FROM above UNION ALL SELECT org_id, queue FROM below) l
    JOIN orgs o ON o.id = l.org_id
    LEFT JOIN queues q ON q.org_id = l.org_id AND q.name = l.queue
    WHERE (CASE WHEN $3::text[] <> '{}' THEN l.queue = ANY ($3::text[])
        ELSE NOT starts_with(l.queue, 'runtime:') OR (l.queue = 'runtime:dispatcher' AND $7::uuid IS NULL) END
        OR (starts_with(l.queue, 'runtime:version:') AND aaiclick_serves_version($1, l.queue, $3::text[])))
      AND o.paused_at IS NULL AND q.paused_at IS NULL
),
limited_org AS MATERIALIZED (
    SELECT o.id, o.max_running, o.rate_per_second, o.claim_xid,
           CASE WHEN o.rate_at > (SELECT now FROM clock) THEN b.most  -- the clock was set back since
               WHEN o.rate_per_second IS NOT NULL THEN
               least(b.most, coalesce(o.rate_tokens, b.most) + o.rate_per_second
                   * greatest(0, extract(epoch FROM (SELECT now FROM clock) - o.rate_at))) END AS tokens
    FROM orgs o CROSS JOIN LATERAL (SELECT coalesce(o.rate_burst, greatest(o.rate_per_second, 1)) AS most) b
    WHERE o.id = ANY (ARRAY(SELECT org_id FROM lane WHERE org_limited))
    ORDER BY o.id FOR NO KEY UPDATE OF o SKIP LOCKED
),
limited_queue AS MATERIALIZED (
    SELECT q.org_id, q.name, q.max_running, q.rate_per_second, q.claim_xid,
           CASE WHEN q.rate_at > (SELECT now FROM clock) THEN b.most  -- the clock was set back since
               WHEN q.rate_per_second IS NOT NULL THEN
               least(b.most, coalesce(q.rate_tokens, b.most) + q.rate_per_second
                   * greatest(0, extract(epoch FROM (SELECT now FROM clock) - q.rate_at))) END AS tokens
    FROM queues q CROSS JOIN LATERAL (SELECT coalesce(q.rate_burst, greatest(q.rate_per_second, 1)) AS most) b
    WHERE (q.org_id, q.name) IN (SELECT org_id, queue FROM lane WHERE queue_limited)
    ORDER BY q.org_id, q.name FOR NO KEY UPDATE OF q SKIP LOCKED
),
org_room AS MATERIALIZED (
    SELECT o.id, greatest(0, least($2::int, floor(o.tokens), o.max_running - (
        SELECT count(*) FROM tasks t WHERE t.status IN ('CLAIMED', 'RUNNING') AND t.org_id = o.id)))::int AS room
    FROM limited_org o
    WHERE o.claim_xid IS NULL OR pg_visible_in_snapshot(o.claim_xid::text::xid8, pg_current_snapshot())
),
queue_room AS MATERIALIZED (
    SELECT q.org_id, q.name, greatest(0, least($2::int, floor(q.tokens), q.max_running - (
        SELECT count(*) FROM tasks t WHERE t.status IN ('CLAIMED', 'RUNNING') AND t.org_id = q.org_id
          AND t.queue = q.name)))::int AS room
    FROM limited_queue q
    WHERE q.claim_xid IS NULL OR pg_visible_in_snapshot(q.claim_xid::text::xid8, pg_current_snapshot())
),
share AS MATERIALIZED (
    SELECT l.org_id, l.queue, l.luck, l.weight, count(*) OVER () AS lanes,
           CASE WHEN l.org_limited THEN coalesce(o.room, 0) ELSE $2::int END AS org_room,
           least(CASE WHEN l.org_limited THEN coalesce(o.room, 0) ELSE $2::int END,
                 CASE WHEN l.queue_limited THEN coalesce(q.room, 0) ELSE $2::int END) AS room
    FROM lane l
    LEFT JOIN org_room o ON o.id = l.org_id
    LEFT JOIN queue_room q ON q.org_id = l.org_id AND q.name = l.queue
),
quota AS MATERIALIZED (
    SELECT org_id, queue, room AS quota FROM share WHERE lanes = 1
    UNION ALL
    SELECT org_id, queue, count(*) FROM (
        SELECT r.org_id, r.queue FROM (
          SELECT p.org_id, p.queue, p.org_room, p.place, nth_value(p.turn, p.place) OVER (PARTITION BY p.org_id
            ORDER BY p.turn ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS turn
          FROM (
            SELECT s.org_id, s.queue, s.org_room, (k.nth - s.luck) / s.weight AS turn,
                   (row_number() OVER (PARTITION BY s.org_id
                       ORDER BY k.priority DESC, (k.nth - s.luck) / s.weight))::int AS place
            FROM share s CROSS JOIN LATERAL (
                SELECT row_number() OVER () AS nth, priority FROM (
                    SELECT t.priority FROM tasks t
                    WHERE t.readiness = 'READY' AND t.org_id = s.org_id AND t.queue = s.queue
                    ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
                    LIMIT least(s.room, greatest(4, 4 * $2::int / s.lanes))) AS candidates) k
            WHERE s.lanes > 1) p) r
        WHERE r.place <= r.org_room
        ORDER BY r.turn LIMIT $2::int) AS turns
    GROUP BY org_id, queue
),
chosen AS MATERIALIZED (
    SELECT c.id, c.org_id, q.queue, c.priority, c.job_id, c.rate, coalesce(c.rate_key, c.type) AS rate_key,
        c.concurrency_key, (c.org_id, c.type) IN (SELECT org_id, name FROM task_types WHERE paused_at IS NOT NULL)
        OR coalesce(c.job_id IN (SELECT id FROM jobs WHERE paused_at IS NOT NULL), false) AS paused
    FROM quota q CROSS JOIN LATERAL (
        SELECT t.id, t.org_id, t.type, t.job_id, t.priority, t.rate, t.rate_key, t.concurrency_key FROM tasks t
        WHERE t.readiness = 'READY' AND t.org_id = q.org_id AND t.queue = q.queue
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
        LIMIT q.quota FOR NO KEY UPDATE SKIP LOCKED) c
),
charged AS MATERIALIZED (
    SELECT d.org_id, d.rate_key, d.rate, c.granted, c.free_at FROM (
        SELECT org_id, rate_key, rate, count(*)::int AS tasks FROM chosen WHERE rate IS NOT NULL AND NOT paused
        GROUP BY org_id, rate_key, rate ORDER BY org_id, rate_key, rate) d
    CROSS JOIN LATERAL aaiclick_charge_rate(d.org_id, d.rate_key, d.rate, d.tasks, false, (SELECT now FROM clock)) AS c
    WHERE c.granted IS NOT NULL
),
rated AS MATERIALIZED (
    SELECT c.id, c.org_id, c.rate_key, c.concurrency_key, g.free_at, row_number() OVER (PARTITION BY c.org_id,
        c.rate_key, c.rate ORDER BY c.priority DESC, COALESCE(c.job_id, c.id), c.id) <= g.granted AS fits
    FROM chosen c JOIN charged g ON g.org_id = c.org_id AND g.rate_key = c.rate_key AND g.rate = c.rate
    WHERE NOT c.paused
),
further AS MATERIALIZED (
    SELECT f.id FROM (
        SELECT org_id, queue FROM chosen WHERE paused OR id IN (SELECT id FROM rated WHERE NOT fits)
        GROUP BY org_id, queue HAVING count(*) = (SELECT count(*) FROM chosen)) l
    CROSS JOIN LATERAL (
        SELECT t.id, t.org_id, t.type, t.job_id, t.rate, t.rate_key, t.concurrency_key FROM tasks t
        WHERE t.readiness = 'READY' AND t.org_id = l.org_id AND t.queue = l.queue
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
        LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED) f
    WHERE f.id <> ALL (ARRAY(SELECT id FROM chosen))
      AND ((f.rate IS NOT NULL AND f.concurrency_key IS NULL
            AND (f.org_id, coalesce(f.rate_key, f.type)) IN (SELECT org_id, rate_key FROM rated WHERE NOT fits))
        OR (f.org_id, f.type) IN (SELECT org_id, name FROM task_types WHERE paused_at IS NOT NULL)
        OR coalesce(f.job_id IN (SELECT id FROM jobs WHERE paused_at IS NOT NULL), false))
),
held AS (
    UPDATE tasks SET readiness = 'HELD', updated_at = (SELECT now FROM clock)
    WHERE id = ANY (ARRAY(
        SELECT id FROM chosen WHERE paused
        UNION ALL SELECT id FROM rated WHERE NOT fits AND concurrency_key IS NULL
        UNION ALL SELECT id FROM further)) RETURNING id
),
delayed AS (
    UPDATE tasks SET readiness = 'TIME', updated_at = (SELECT now FROM clock),
        available_at = (SELECT r.free_at FROM rated r WHERE r.id = tasks.id)
    WHERE id = ANY (ARRAY(SELECT id FROM rated WHERE NOT fits AND concurrency_key IS NOT NULL)) RETURNING id
),
taken AS (
    UPDATE tasks SET status = 'CLAIMED', readiness = NULL, attempt = attempt + 1, worker_id = $1, lease_token = $5,
        lease_expires_at = (SELECT now FROM clock) + coalesce(lease_seconds, $4::float8) * interval '1 second',
        claimed_at = (SELECT now FROM clock), last_heartbeat = (SELECT now FROM clock), started_at = NULL,
        updated_at = (SELECT now FROM clock)
    WHERE id = ANY (ARRAY(
        SELECT id FROM chosen WHERE NOT paused AND rate IS NULL UNION ALL SELECT id FROM rated WHERE fits))
    RETURNING id, attempt, org_id, job_id, group_id, type, entrypoint, kwargs, timeout_seconds, failures, retry_policy,
        has_dependents OR group_id IS NOT NULL OR concurrency_key IS NOT NULL AS linked,
        num_nonnulls(group_id, concurrency_key, added_by) > 0 AS grouped,
        coalesce(error_fingerprint = 'worker crashed', false) AS suspect, priority, queue, lease_seconds,
        max_attempts = 1 AND NOT repeatable AS runs_once
),
spent AS (SELECT org_id, queue, count(*) AS tasks FROM taken GROUP BY org_id, queue),
charged_orgs AS (
    UPDATE orgs o SET claim_xid = pg_current_xact_id()::text::bigint, rate_at = (SELECT now FROM clock),
        rate_tokens = l.tokens - s.tasks
    FROM limited_org l JOIN (SELECT org_id, sum(tasks) AS tasks FROM spent GROUP BY org_id) s ON s.org_id = l.id
    WHERE o.id = l.id
),
charged_queues AS (
    UPDATE queues q SET claim_xid = pg_current_xact_id()::text::bigint, rate_at = (SELECT now FROM clock),
        rate_tokens = l.tokens - s.tasks
    FROM limited_queue l JOIN spent s ON s.org_id = l.org_id AND s.queue = l.name
    WHERE q.org_id = l.org_id AND q.name = l.name
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
WHERE EXISTS (SELECT FROM held) OR EXISTS (SELECT FROM delayed)
    OR (SELECT count(*) FROM rated) < (SELECT count(*) FROM chosen WHERE rate IS NOT NULL AND NOT paused)

-- name: promote_due_tasks
-- Make due tasks ready, the longest due first; those with a concurrency key become HELD.
WITH due AS MATERIALIZED (
    SELECT id FROM tasks WHERE readiness = 'TIME' AND available_at <= coalesce($2::timestamptz, now())
    ORDER BY available_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET status = 'PENDING', next_retry_at = NULL, updated_at = coalesce($2::timestamptz, now()),
    readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness
WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING queue, org_id, concurrency_key, readiness

-- name: has_due_tasks
-- Whether a scheduled task or the rate of a key is due: a cheap check before `promote_due_tasks`.
SELECT EXISTS (SELECT FROM tasks WHERE readiness = 'TIME' AND available_at <= coalesce($1::timestamptz, now()))
    OR EXISTS (SELECT FROM rate_limits WHERE next_at <= coalesce($1::timestamptz, now()))

-- name: seconds_to_next_due
-- Seconds until the next scheduled task or the rate of a key is due; NULL if there is none.
SELECT extract(epoch FROM least((SELECT min(available_at) FROM tasks WHERE readiness = 'TIME'),
    (SELECT min(next_at) FROM rate_limits WHERE next_at > '-infinity')) - now())::float8

-- name: lock_due_rates
-- Lock up to $1 rate keys with tasks that may be ready again.
SELECT org_id, key FROM rate_limits WHERE next_at <= coalesce($2::timestamptz, now())
ORDER BY next_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: admit_rated_tasks
-- Make as many held tasks of the locked rate keys ($1, $2) ready as may be claimed now, and set when the next ones may.
-- They are charged by their claims: those that come too late are held again.
WITH free AS MATERIALIZED (
    SELECT r.row_id, r.org_id, r.key, greatest(0, r.allowed - coalesce(u.used, 0)) AS room,
        coalesce(u.first_end, coalesce($3::timestamptz, now())) + r.seconds * interval '1 second' AS next_at
    FROM unnest($1::uuid[], $2::text[]) AS k (org_id, key)
    CROSS JOIN LATERAL (SELECT r.ctid AS row_id, r.* FROM rate_limits r WHERE r.org_id = k.org_id AND r.key = k.key OFFSET 0) r
    CROSS JOIN LATERAL (
        SELECT sum(e.claims) AS used, min(e.ends_at) AS first_end FROM unnest(r.ends, r.counts) AS e (ends_at, claims)
        WHERE e.ends_at > coalesce($3::timestamptz, now()) - r.seconds * interval '1 second'
          -- Not those in the future: the clock was set back since.
          AND e.ends_at < coalesce($3::timestamptz, now()) + greatest(r.seconds, 10) * interval '1 second') u
),
next AS MATERIALIZED (
    SELECT n.id FROM free f CROSS JOIN LATERAL (
        SELECT t.id FROM tasks t
        WHERE t.readiness = 'HELD' AND t.rate IS NOT NULL AND t.org_id = f.org_id
          AND COALESCE(t.rate_key, t.type) = f.key AND t.concurrency_key IS NULL
          AND (t.org_id, t.type) NOT IN (SELECT org_id, name FROM task_types WHERE paused_at IS NOT NULL)
          AND NOT coalesce(t.job_id IN (SELECT id FROM jobs WHERE paused_at IS NOT NULL), false)
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
        LIMIT f.room FOR NO KEY UPDATE SKIP LOCKED) n
),
ready AS (
    UPDATE tasks SET readiness = 'READY', updated_at = coalesce($3::timestamptz, now())
    WHERE id = ANY (ARRAY(SELECT id FROM next)) RETURNING queue
),
waiting AS MATERIALIZED (
    SELECT f.row_id, CASE WHEN coalesce((
        SELECT true FROM tasks t
        WHERE t.readiness = 'HELD' AND t.rate IS NOT NULL AND t.org_id = f.org_id
          AND COALESCE(t.rate_key, t.type) = f.key AND t.concurrency_key IS NULL
          AND (t.org_id, t.type) NOT IN (SELECT org_id, name FROM task_types WHERE paused_at IS NOT NULL)
          AND NOT coalesce(t.job_id IN (SELECT id FROM jobs WHERE paused_at IS NOT NULL), false)
          AND t.id <> ALL (ARRAY(SELECT id FROM next)) LIMIT 1), false) THEN f.next_at END AS next_at
    FROM free f
),
planned AS (
    UPDATE rate_limits r SET next_at = (SELECT w.next_at FROM waiting w WHERE w.row_id = r.ctid)
    WHERE r.ctid = ANY (ARRAY(SELECT row_id FROM waiting))
)
SELECT queue, count(*) AS tasks FROM ready GROUP BY queue

-- name: notify_ready
-- Notify the workers of the queues $1 at commit; PostgreSQL deduplicates notifications.
SELECT pg_notify('aaiclick_ready', u.queue) FROM unnest($1::text[]) AS u (queue)

-- name: lock_concurrency_keys
-- Lock concurrency keys, in one order for all callers.
SELECT pg_advisory_xact_lock(1633773923, k.lock) FROM (
    SELECT DISTINCT hashtext(u.org_id::text || u.key) AS lock FROM unnest($1::uuid[], $2::text[]) AS u (org_id, key)
    ORDER BY lock) AS k

-- name: admit_held_tasks
-- Give the free slots of the concurrency keys ($1, $2) to their next held tasks: READY and leased tasks together stay
-- within the limit of the key. If tasks of one key have different limits, that of the next task counts.
WITH key AS (SELECT DISTINCT u.org_id, u.key FROM unnest($1::uuid[], $2::text[]) AS u (org_id, key)),
line AS MATERIALIZED (
    SELECT k.org_id, k.key, (
            SELECT count(*) FROM tasks t WHERE t.org_id = k.org_id AND t.concurrency_key = k.key
              AND t.concurrency_key IS NOT NULL AND (t.readiness = 'READY' OR t.status IN ('CLAIMED', 'RUNNING'))
        ) AS taken, coalesce((
            SELECT t.concurrency_limit FROM tasks t
            WHERE t.readiness = 'HELD' AND t.org_id = k.org_id AND t.concurrency_key = k.key
            ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id LIMIT 1), 1) AS slots
    FROM key k
),
next AS MATERIALIZED (
    SELECT n.id FROM line l CROSS JOIN LATERAL (
        SELECT t.id FROM tasks t
        WHERE t.readiness = 'HELD' AND t.org_id = l.org_id AND t.concurrency_key = l.key
          AND (t.org_id, t.type) NOT IN (SELECT org_id, name FROM task_types WHERE paused_at IS NOT NULL)
          AND NOT coalesce(t.job_id IN (SELECT id FROM jobs WHERE paused_at IS NOT NULL), false)
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
        LIMIT greatest(0, l.slots - l.taken) FOR NO KEY UPDATE SKIP LOCKED) n
)
UPDATE tasks SET readiness = 'READY', updated_at = now() WHERE id = ANY (ARRAY(SELECT id FROM next))
RETURNING queue

-- name: release_held_tasks
-- Release tasks that were held while the type $2 of the org $1 or the job $3 was paused. Tasks with a concurrency key
-- wait for a slot; tasks paused for another reason are held again by the next claim.
UPDATE tasks SET readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness,
    updated_at = now()
WHERE readiness = 'HELD' AND org_id = $1 AND ($2::text IS NULL OR type = $2) AND ($3::bigint IS NULL OR job_id = $3)
RETURNING org_id, concurrency_key, queue, readiness::text

-- name: unblock_task
-- Make the task $1, which has no job, READY, or HELD if it has a concurrency key.
UPDATE tasks SET readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness,
    updated_at = now()
WHERE id = $1 RETURNING org_id, concurrency_key, queue, readiness::text

-- name: register_worker
-- Register a worker. A repeated registration (the first response was lost) updates the same worker, and so does one of
-- a worker that was declared dead.
INSERT INTO workers (id, hostname, pid, pool_size, version, queues, org_id, log_directory, code_version, code_modules)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (id) DO UPDATE SET last_heartbeat = now(), stopped_at = NULL,
    status = CASE WHEN workers.status = 'STOPPED' THEN 'ACTIVE' ELSE workers.status END
WHERE workers.org_id IS NOT DISTINCT FROM EXCLUDED.org_id
RETURNING {workers.*}

-- name: renew_worker
-- Heartbeat of the worker $1; adds $2 completed and $3 failed tasks to its counters.
UPDATE workers SET last_heartbeat = coalesce($4::timestamptz, now()), tasks_completed = tasks_completed + $2,
    tasks_failed = tasks_failed + $3
WHERE id = $1 AND status <> 'STOPPED'

-- name: set_code_version
-- Set the code version $2 of the worker $1, which registered without one.
UPDATE workers SET code_version = $2 WHERE id = $1 AND code_version IS NULL

-- name: worker_exists
SELECT EXISTS (SELECT FROM workers WHERE id = $1)

-- name: stop_worker
-- Stop the worker $1 and end its term. The caller releases its leases.
UPDATE workers SET status = 'STOPPED', stopped_at = coalesce($2::timestamptz, now()), is_leader = false,
    leader_until = NULL
WHERE id = $1 AND status <> 'STOPPED' RETURNING id

-- name: stop_dead_workers
-- Stop workers without a heartbeat for $1 seconds; safe to run concurrently.
WITH silent AS MATERIALIZED (
    SELECT id FROM workers
    WHERE status <> 'STOPPED'
      AND last_heartbeat < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE workers SET status = 'STOPPED', stopped_at = coalesce($2::timestamptz, now()), is_leader = false,
    leader_until = NULL
WHERE id = ANY (ARRAY(SELECT id FROM silent)) RETURNING id

-- name: drain_worker
-- Request that the worker $1 finishes its tasks and exits; its supervisor reads it.
UPDATE workers SET drain_requested_at = coalesce(drain_requested_at, now()) WHERE id = $1 AND status <> 'STOPPED' RETURNING id

-- name: list_draining_workers
SELECT id FROM workers WHERE id = ANY ($1::bigint[]) AND drain_requested_at IS NOT NULL

-- name: are_workers_of_org
-- Whether all the workers $1 belong to the org $2.
SELECT NOT EXISTS (
    SELECT FROM unnest($1::bigint[]) AS g (id) WHERE NOT EXISTS (SELECT FROM workers w WHERE w.id = g.id AND w.org_id = $2))

-- name: check_liveness
-- Liveness of the workers $2 of the orgs $1: ALIVE (heartbeat within $3 seconds), ENDED (stopped $4 seconds ago, or
-- unknown), or SILENT.
SELECT g.org_id, g.id, CASE
    WHEN w.id IS NULL THEN 'ENDED'
    WHEN w.status = 'STOPPED' AND w.stopped_at < now() - $4::float8 * interval '1 second' THEN 'ENDED'
    WHEN w.status <> 'STOPPED' AND w.last_heartbeat > now() - $3::float8 * interval '1 second' THEN 'ALIVE'
    ELSE 'SILENT' END AS liveness
FROM unnest($1::uuid[], $2::bigint[]) AS g (org_id, id)
LEFT JOIN workers w ON w.id = g.id AND w.org_id = g.org_id

-- name: list_eligible_workers
-- Workers with a heartbeat within $2 seconds that could claim ready tasks of the job $1, per queue; a row without a
-- worker if there is none. Tasks of external runtimes are ignored; without other ready tasks, all workers that serve
-- the org are listed. Reads at most a thousand tasks.
WITH lane AS MATERIALIZED (
    SELECT DISTINCT t.queue FROM (
        SELECT queue FROM tasks WHERE job_id = $1 AND readiness IN ('READY', 'TIME', 'HELD') LIMIT 1000) t
    WHERE NOT starts_with(t.queue, 'runtime:') OR t.queue = 'runtime:dispatcher'
)
SELECT l.queue, w.hostname, w.pid, w.code_modules
FROM jobs j
CROSS JOIN (SELECT queue FROM lane UNION ALL SELECT NULL WHERE NOT EXISTS (SELECT FROM lane)) l
LEFT JOIN workers w ON w.status <> 'STOPPED' AND w.drain_requested_at IS NULL
    AND w.last_heartbeat > now() - $2::float8 * interval '1 second'
    AND (w.org_id IS NULL OR w.org_id = j.org_id)
    AND CASE WHEN l.queue IS NULL THEN NOT EXISTS (SELECT FROM unnest(w.queues) q WHERE starts_with(q, 'runtime:'))
        WHEN w.queues <> '{}' THEN l.queue = ANY (w.queues)
        ELSE l.queue <> 'runtime:dispatcher' OR w.org_id IS NULL END
WHERE j.id = $1

-- name: add_outcome_counts
-- Report $6 of the worker $1: adds $4 completed and $5 failed tasks of the queues $3 of the orgs $2 to its counters and
-- to those of this minute, and is a heartbeat. A repeated report changes nothing. Queues are locked in one order, so that
-- concurrent workers do not deadlock.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[]) AS g (org_id, queue, completed, failed)
),
reported AS (
    UPDATE workers SET last_count_report = $6,
        last_heartbeat = CASE WHEN status = 'STOPPED' THEN last_heartbeat ELSE now() END,
        status = CASE WHEN status <> 'STOPPED' AND EXISTS (SELECT FROM given) THEN 'ACTIVE' ELSE status END,
        tasks_completed = tasks_completed + coalesce((SELECT sum(completed) FROM given), 0),
        tasks_failed = tasks_failed + coalesce((SELECT sum(failed) FROM given), 0)
    WHERE id = $1 AND last_count_report < $6 RETURNING id
)
INSERT INTO queue_minutes (org_id, queue, minute, completed, failed)
SELECT org_id, queue, date_trunc('minute', now()), completed, failed FROM given
WHERE EXISTS (SELECT FROM reported) ORDER BY org_id, queue
ON CONFLICT (org_id, queue, minute) DO UPDATE SET completed = queue_minutes.completed + excluded.completed,
    failed = queue_minutes.failed + excluded.failed

-- name: list_workers
SELECT {workers.*} FROM workers WHERE $1::text IS NULL OR status = $1::worker_status ORDER BY id

-- name: list_workers_for_org
-- Workers that serve the org $1 (NULL: any): its own and those of all orgs; after the id $2, stopped ones if $3, at most $4.
SELECT {workers.*} FROM workers
WHERE ($1::uuid IS NULL OR org_id IS NULL OR org_id = $1) AND id > $2 AND ($3 OR status <> 'STOPPED') ORDER BY id LIMIT $4

-- name: get_worker_for_org
SELECT {workers.*} FROM workers WHERE id = $2 AND ($1::uuid IS NULL OR org_id IS NULL OR org_id = $1)

-- name: lock_election
SELECT pg_try_advisory_xact_lock(7089063228440191074)

-- name: begin_term
-- Extend the term of $1 if it leads; begin one if there is no leader. A term that has ended is never extended.
UPDATE workers w SET is_leader = true, leader_term = CASE WHEN w.is_leader THEN w.leader_term
        ELSE nextval('leader_terms') END,
    leader_until = coalesce($3::timestamptz, now()) + $2::float8 * interval '1 second'
WHERE w.id = $1 AND w.status <> 'STOPPED'
  AND (w.is_leader OR NOT EXISTS (SELECT FROM workers o WHERE o.is_leader))
RETURNING leader_term

-- name: bound_terms
-- Shorten the term of a leader with a heartbeat in the future, elected before PostgreSQL's clock was set back: it ends
-- at most $2 seconds from now, unless it is extended.
UPDATE workers SET leader_until = least(leader_until, coalesce($1::timestamptz, now()) + $2::float8 * interval '1 second'),
    last_heartbeat = coalesce($1::timestamptz, now())
WHERE is_leader AND last_heartbeat > coalesce($1::timestamptz, now()) + interval '1 second'

-- name: end_terms
-- End terms that have expired, and terms of stopped workers.
UPDATE workers SET is_leader = false, leader_until = NULL
WHERE is_leader AND (leader_until <= coalesce($1::timestamptz, now()) OR status = 'STOPPED')

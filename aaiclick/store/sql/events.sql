-- name: emit_events
-- Insert events into the outbox, in the transaction that causes them, and notify routers at commit.
WITH put AS (
    INSERT INTO outbox (org_id, job_id, kind, payload, cursor)
    SELECT org_id, job_id, 'route_event', payload, cursor
    FROM unnest($1::uuid[], $2::bigint[], $3::jsonb[], $4::text[]) WITH ORDINALITY
        AS u (org_id, job_id, payload, cursor, nth)
    ORDER BY nth
    RETURNING id
)
SELECT count(*), pg_notify('aaiclick_events', '') FROM put

-- name: lock_events
-- Serialise emitters of events of one generation: ids of events then have the order of commits.
SELECT pg_advisory_xact_lock(hashtextextended('events:' || key, 0))
FROM (SELECT DISTINCT key FROM unnest($1::text[]) AS u (key) ORDER BY key) AS keys

-- name: lock_router
-- Lock the router: with one router at a time, events of a dataset are routed in order. A routing that is lost in a
-- crash is repeated, so its commit is asynchronous.
SELECT pg_try_advisory_xact_lock(hashtextextended('aaiclick router', 0)), set_config('synchronous_commit', 'off', true)

-- name: has_due_events
SELECT EXISTS (
    SELECT FROM outbox WHERE status = 'Pending' AND kind = 'route_event' AND available_at <= coalesce($1::timestamptz, now()))

-- name: list_due_events
-- The ids of the oldest events that are due at $2, at most $1.
SELECT id FROM outbox
WHERE status = 'Pending' AND kind = 'route_event' AND available_at <= coalesce($2::timestamptz, now()) ORDER BY id LIMIT $1::int

-- name: take_events
-- Delete the oldest events that are due at $3, at most $1, or those named by $2; the router inserts their tasks in this
-- transaction. (Marking them as Done costs four times as much, and is not needed.) Grouped by payload, which thousands
-- may share: ids, and the job and cursor of each.
WITH taken AS (
    DELETE FROM outbox WHERE status = 'Pending' AND id = ANY (coalesce($2::bigint[], ARRAY(
        SELECT id FROM outbox WHERE status = 'Pending' AND kind = 'route_event'
          AND available_at <= coalesce($3::timestamptz, now()) ORDER BY id LIMIT $1::int)))
    RETURNING id, org_id, job_id, cursor, payload
)
SELECT org_id, payload::text AS payload, array_agg(id) AS ids, array_agg(job_id) AS jobs, array_agg(cursor) AS cursors
FROM taken GROUP BY org_id, taken.payload

-- name: lock_open_jobs
-- Those of the jobs $1 that may get more tasks, locked against cancellation.
SELECT j.id FROM (
    SELECT given.id, pg_advisory_xact_lock_shared(given.id)
    FROM (SELECT DISTINCT id FROM unnest($1::bigint[]) AS u (id) ORDER BY id) AS given OFFSET 0
) AS held CROSS JOIN LATERAL (
    SELECT j.id FROM jobs j WHERE j.id = held.id AND j.cancel_requested_at IS NULL AND j.completed_at IS NULL OFFSET 0) AS j

-- name: list_consumers
-- Reactive definitions that read a generation of a dataset, of serving versions; or, while a version is filled ($4),
-- those of that version with outputs that were created for it. Only the definition $5, if given.
SELECT g.nth, d.id, d.dag_name || '.' || d.name AS type, d.execution_strategy, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime,
    d.operator, (d.scaling ->> 'max_concurrency')::int AS max_concurrency
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[]) WITH ORDINALITY
    AS g (org_id, dataset, generation, build, only_id, nth)
CROSS JOIN LATERAL (SELECT s.producer_dag_name FROM datasets s WHERE s.id = g.dataset AND s.org_id = g.org_id) AS s
CROSS JOIN LATERAL (
    SELECT * FROM job_definitions d
    WHERE d.input_datasets @> ARRAY[g.dataset::text] AND d.org_id = g.org_id AND d.activation = 'reactive') AS d
WHERE (g.only_id IS NULL OR d.id = g.only_id)
  AND CASE WHEN g.build IS NULL THEN EXISTS (
        SELECT FROM dag_current_versions c
        WHERE c.org_id = d.org_id AND c.dag_name = d.dag_name AND c.dag_version_id = d.dag_version_id)
    ELSE d.dag_version_id = g.build AND EXISTS (
        SELECT FROM dag_version_datasets p JOIN dataset_versions v ON v.id = p.dataset_version
        WHERE p.dag_version_id = g.build AND p.dataset_uuid = ANY (d.output_datasets::uuid[])
          AND v.dag_version_id = g.build) END
  AND EXISTS (
    SELECT FROM dag_version_datasets p
    WHERE p.dataset_uuid = g.dataset AND p.dataset_version = g.generation AND p.dag_version_id =
        CASE WHEN d.dag_name = s.producer_dag_name THEN d.dag_version_id ELSE (
            SELECT c.dag_version_id FROM dag_current_versions c
            WHERE c.org_id = g.org_id AND c.dag_name = s.producer_dag_name) END)
ORDER BY g.nth, d.name, d.id

-- name: find_missing_reference
-- The first reference of events that does not exist: the dataset $2 of the org $1, the DAG version $4, the definition
-- $5.
SELECT CASE
    WHEN NOT EXISTS (SELECT FROM datasets d WHERE d.id = g.dataset AND d.org_id = g.org_id) THEN 'dataset ' || g.dataset
    WHEN g.build IS NOT NULL AND NOT EXISTS (SELECT FROM dag_versions v WHERE v.id = g.build AND v.org_id = g.org_id)
        THEN 'DAG version ' || g.build
    ELSE 'definition ' || g.only_id END AS missing
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[]) WITH ORDINALITY
    AS g (org_id, dataset, generation, build, only_id, nth)
WHERE NOT EXISTS (SELECT FROM datasets d WHERE d.id = g.dataset AND d.org_id = g.org_id)
   OR (g.build IS NOT NULL AND NOT EXISTS (SELECT FROM dag_versions v WHERE v.id = g.build AND v.org_id = g.org_id))
   OR (g.only_id IS NOT NULL AND NOT EXISTS (SELECT FROM job_definitions f WHERE f.id = g.only_id AND f.org_id = g.org_id))
ORDER BY g.nth LIMIT 1

-- name: add_routed_tasks
-- Add $2 tasks to the jobs $1 and subtract $3 events to route; a job without open tasks and events ends.
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

-- name: lock_waiting_update
-- Lock a task of the definition $3 with the concurrency key $2 that was never claimed; no row: there is none.
SELECT id FROM tasks t
WHERE t.id = ANY (ARRAY(
    SELECT h.id FROM tasks h WHERE h.readiness = 'HELD' AND h.org_id = $1 AND h.concurrency_key = $2
    UNION ALL
    SELECT r.id FROM tasks r WHERE r.org_id = $1 AND r.concurrency_key = $2 AND r.concurrency_key IS NOT NULL
      AND (r.readiness = 'READY' OR r.status IN ('CLAIMED', 'RUNNING'))))
  AND t.definition_id = $3 AND t.attempt = 0 AND t.readiness IN ('HELD', 'READY')
  AND NOT (t.kwargs -> 'event') ? 'build'
LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED

-- name: insert_definition_tasks
-- Insert tasks of the definition $1 of the org $2. Shared values: $3 to $6 and the options. Per task: id, job, dedupe
-- key, event ($5 is the prefix of its kwargs), partition.
INSERT INTO tasks (id, org_id, job_id, definition_id, dedupe_key, type, entrypoint, kwargs, readiness, partitions,
    {task_options.*})
SELECT u.id, $2, u.job_id, $1, u.dedupe_key, $3, $4, ($5::text || u.event || '}')::jsonb, $6::task_readiness,
    CASE WHEN u.partition IS NOT NULL THEN ARRAY[u.partition] END, {task_options.$12}
FROM unnest($7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::text[])
    AS u (id, job_id, dedupe_key, event, partition)

-- name: find_dedupe_keys
-- Those of the dedupe keys $2 that the definition $1 has already.
SELECT t.dedupe_key FROM unnest($2::text[]) AS u (dedupe_key) CROSS JOIN LATERAL (
    SELECT t.dedupe_key FROM tasks t
    WHERE t.definition_id = $1 AND t.dedupe_key = u.dedupe_key AND t.dedupe_key IS NOT NULL OFFSET 0) AS t

-- name: mark_definitions_running
-- Mark definitions with new tasks as Running. For sources a trigger does that when a worker claims the task.
UPDATE job_definitions SET status = CASE WHEN activation = 'reactive' THEN 'Running' ELSE status END, last_event_at = now()
WHERE id = ANY ($1::uuid[])

-- name: charge_event
-- Charge the event $1 a failed attempt with the error $2: after $3 of them it is Failed, otherwise it waits $4 · $5^(n
-- - 1) seconds.
UPDATE outbox SET attempts = attempts + 1, last_error = $2,
    status = CASE WHEN attempts + 1 >= $3::int THEN 'Failed' ELSE 'Pending' END::outbox_status,
    processed_at = CASE WHEN attempts + 1 >= $3::int THEN coalesce($6::timestamptz, now()) END,
    available_at = coalesce($6::timestamptz, now()) + $4::float8 * power($5::float8, attempts) * interval '1 second'
WHERE id = $1 AND status = 'Pending'
RETURNING status::text

-- name: fail_event_job
-- Fail the job of the failed event $1, and subtract the event. The error contains no data: readers of the job may not
-- be allowed to read the dataset.
UPDATE jobs j SET open_events = j.open_events - 1, started_at = coalesce(j.started_at, now()), updated_at = now(),
    error = CASE WHEN j.cancel_requested_at IS NULL THEN coalesce(j.error, e.cause) ELSE j.error END,
    status = CASE
        WHEN j.open_tasks > 0 OR j.open_events > 1 THEN 'RUNNING'
        WHEN j.failed_tasks > 0 OR j.error IS NOT NULL OR j.cancel_requested_at IS NULL THEN 'FAILED'
        ELSE 'CANCELLED' END::job_status,
    completed_at = CASE WHEN j.open_tasks = 0 AND j.open_events = 1 THEN coalesce($2::timestamptz, now()) END
FROM (
    SELECT o.job_id, format('Event %s could not be routed. See: aaiclick events ls', o.id) AS cause
    FROM outbox o WHERE o.id = $1 AND o.status = 'Failed') AS e
WHERE j.id = e.job_id

-- name: list_events
-- Events of the org $1 (or of all) with the status $2 (or any) that are older than the id $3.
SELECT o.id, o.org_id, o.job_id, o.kind, o.status::text, o.attempts, o.last_error, o.created_at, o.available_at, o.processed_at,
    o.cursor, o.payload, d.name AS dataset
FROM outbox o LEFT JOIN datasets d ON d.id::text = o.payload ->> 'dataset' AND d.org_id = o.org_id
WHERE ($1::uuid IS NULL OR o.org_id = $1) AND ($2::text IS NULL OR o.status = $2::outbox_status) AND o.id < $3
ORDER BY o.id DESC LIMIT $4

-- name: count_events_by_status
SELECT status::text, count(*) FROM outbox WHERE $1::uuid IS NULL OR org_id = $1 GROUP BY status

-- name: count_events_by_org
SELECT org_id, count(*) FROM outbox WHERE id = ANY ($1::bigint[]) GROUP BY org_id ORDER BY org_id

-- name: lock_failed_events
-- Failed events of the org $1 (NULL: all), all or those named by $2, at most $3; locked, with their jobs.
SELECT o.id, j.cancel_requested_at IS NOT NULL AS cancelled FROM outbox o JOIN jobs j ON j.id = o.job_id
WHERE o.status = 'Failed' AND ($1::uuid IS NULL OR o.org_id = $1) AND ($2::bigint[] IS NULL OR o.id = ANY ($2))
ORDER BY j.id, o.id LIMIT $3 FOR NO KEY UPDATE

-- name: retry_events
-- Make the failed events $1 Pending with all their attempts, and reopen their jobs.
WITH again AS (
    UPDATE outbox SET status = 'Pending', attempts = 0, processed_at = NULL, available_at = now()
    WHERE id = ANY ($1::bigint[]) AND status = 'Failed' RETURNING job_id
),
counted AS (SELECT job_id, count(*)::int AS events FROM again GROUP BY job_id),
reopened AS (
    UPDATE jobs j SET open_events = j.open_events + c.events, status = 'RUNNING', updated_at = now(),
        error = CASE WHEN j.error LIKE 'Event % could not be routed.%' THEN (
            SELECT format('Event %s could not be routed. See: aaiclick events ls', o.id) FROM outbox o
            WHERE o.job_id = j.id AND o.status = 'Failed' AND o.id <> ALL ($1::bigint[]) ORDER BY o.id LIMIT 1) ELSE j.error END,
        restarted_at = CASE WHEN j.completed_at IS NOT NULL THEN now() ELSE j.restarted_at END,
        completed_at = NULL, deadline_at = now() + j.timeout_seconds * interval '1 second'
    FROM counted c WHERE j.id = c.job_id
)
SELECT pg_notify('aaiclick_events', '')

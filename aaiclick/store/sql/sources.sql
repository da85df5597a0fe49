-- name: lock_due_definitions
-- Cron sources with a due next run, of DAGs that are not paused, with the number of their unfinished runs.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.source, d.next_run_at, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds,
    d.runtime, d.operator, (d.scaling ->> 'max_concurrency')::int AS max_concurrency,
    coalesce($1::timestamptz, now()) AS now,
    (SELECT count(*) FROM (
        SELECT j.name FROM jobs j WHERE j.org_id = d.org_id AND j.completed_at IS NULL OFFSET 0) AS open
     WHERE open.name = d.dag_name || '.' || d.name) AS running
FROM job_definitions d
WHERE d.next_run_at IS NOT NULL AND d.next_run_at <= coalesce($1::timestamptz, now())
  AND NOT EXISTS (SELECT FROM dag_current_versions c
    WHERE c.org_id = d.org_id AND c.dag_name = d.dag_name AND c.paused_at IS NOT NULL)
ORDER BY d.next_run_at LIMIT 200 FOR NO KEY UPDATE OF d SKIP LOCKED

-- name: lock_idle_sources
-- Always-on sources without an unfinished run, of DAGs that are not paused; with a short pause between two runs.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime, d.operator,
    (d.scaling ->> 'max_concurrency')::int AS max_concurrency
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.paused_at IS NULL AND d.activation = 'source' AND d.source ->> 'kind' = 'always_on'
  AND coalesce(d.last_event_at, '-infinity') <= coalesce($1::timestamptz, now())
    - interval '1 second' * coalesce((d.config ->> 'poll_seconds')::float8, 10)
  AND NOT EXISTS (
    SELECT FROM (SELECT j.name FROM jobs j WHERE j.org_id = d.org_id AND j.completed_at IS NULL OFFSET 0) AS open
    WHERE open.name = d.dag_name || '.' || d.name)
FOR NO KEY UPDATE OF d SKIP LOCKED

-- name: update_source_status
-- Set the status of sources by their tasks at $1: of all that serve or are not Pending, or of the DAG $3 of the org $2;
-- returns how many became Dead. Triggers do the same when a task changes; this finds expired leases and sources that
-- were locked.
SELECT count(*) FROM (
    SELECT aaiclick_set_source_status(d.id, NULL, coalesce($1::timestamptz, now())) AS died FROM job_definitions d
    WHERE d.activation = 'source' AND ($3::text IS NULL OR (d.org_id = $2 AND d.dag_name = $3))
      AND (d.status <> 'Pending' OR EXISTS (SELECT FROM dag_current_versions c WHERE c.dag_version_id = d.dag_version_id))
    OFFSET 0) AS s
WHERE s.died

-- name: list_unfinished_source_runs
-- Unfinished jobs of the name $2 of the org $1, at most $3.
SELECT open.id FROM (SELECT j.id, j.name FROM jobs j WHERE j.org_id = $1 AND j.completed_at IS NULL OFFSET 0) AS open
WHERE open.name = $2 ORDER BY open.id LIMIT $3

-- name: set_next_run
-- Set the next run of the definition $1 to $2, and its last event if $3.
UPDATE job_definitions SET next_run_at = $2, last_event_at = CASE WHEN $3 THEN now() ELSE last_event_at END WHERE id = $1

-- name: mark_idle_definitions
-- Mark reactive definitions as Idle that had no event and no task for their idle_timeout (the last of their latest 100
-- tasks to end counts). Unfinished tasks are searched in
-- unfinished jobs: among all tasks of a definition they would come last. (A comparison without an index keeps the
-- planner from that.)
UPDATE job_definitions d SET status = 'Idle'
WHERE d.activation = 'reactive' AND d.status = 'Running'
  AND greatest(d.last_event_at, (SELECT max(t.completed_at) FROM (
        SELECT t.completed_at FROM tasks t WHERE t.definition_id = d.id ORDER BY t.id DESC LIMIT 100) AS t)) < now() - CASE
    WHEN d.idle_timeout = 'never' THEN NULL
    WHEN coalesce(d.idle_timeout, '0') = '0' THEN interval '0'
    ELSE left(d.idle_timeout, -1)::int * CASE right(d.idle_timeout, 1)
        WHEN 's' THEN interval '1 second' WHEN 'm' THEN interval '1 minute' WHEN 'h' THEN interval '1 hour'
        ELSE interval '1 day' END END
  AND NOT EXISTS (
    SELECT FROM jobs j CROSS JOIN LATERAL (
        SELECT FROM tasks t WHERE t.job_id = j.id AND t.definition_id IS NOT DISTINCT FROM d.id AND t.completed_at IS NULL
        LIMIT 1) AS t
    WHERE j.org_id = d.org_id AND j.completed_at IS NULL)

-- name: list_sources
-- Sources of the serving version of a DAG, optionally by name.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.source, d.spec, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime,
    d.operator, (d.scaling ->> 'max_concurrency')::int AS max_concurrency, c.paused_at IS NOT NULL AS paused
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id AND d.activation = 'source'
WHERE c.org_id = $1 AND c.dag_name = $2 AND ($3::text IS NULL OR d.name = $3)
ORDER BY d.name

-- name: list_definitions
-- Definitions of the serving version of the DAG $2, with their states.
SELECT d.name, d.activation, d.operator, d.source ->> 'kind' AS source, d.status::text, d.next_run_at, d.last_event_at,
    d.last_heartbeat, c.paused_at
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 AND c.dag_name = $2 ORDER BY d.name

-- name: set_dag_paused
-- Pause or resume a DAG; returns the task types of all its versions.
WITH changed AS (
    UPDATE dag_current_versions SET paused_at = CASE WHEN $3 THEN coalesce(paused_at, now()) END
    WHERE org_id = $1 AND dag_name = $2 RETURNING org_id, dag_name
)
SELECT DISTINCT d.dag_name || '.' || d.name AS type FROM changed c
JOIN job_definitions d ON d.org_id = c.org_id AND d.dag_name = c.dag_name ORDER BY 1

-- name: list_failed_tasks
-- What incidents need to know of the tasks $1, which have failed for good or are deliveries that fail repeatedly.
SELECT t.id, t.org_id, t.job_id, t.type, t.error, t.error_fingerprint, t.passed_over, t.queue, t.concurrency_key,
    j.name AS job_name, coalesce(d.dag_name, j.dag_name) AS dag_name, t.dedupe_key IS NULL AND d.source ->> 'kind' = 'always_on' AS is_always_on
FROM unnest($1::bigint[]) AS u (id)
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.id = u.id AND (t.completed_at IS NOT NULL OR t.failures >= $2) OFFSET 0) AS t
LEFT JOIN LATERAL (
    SELECT j.name, (SELECT v.dag_name FROM dag_versions v WHERE v.id = j.dag_version_id) AS dag_name
    FROM jobs j WHERE j.id = t.job_id OFFSET 0) AS j ON true
LEFT JOIN LATERAL (SELECT d.dag_name, d.source FROM job_definitions d WHERE d.id = t.definition_id OFFSET 0) AS d ON true
ORDER BY t.id

-- name: record_incidents
-- Open an incident for each of the keys ($1 org, $2 rule, $3 fingerprint), in this transaction. If one is open, an
-- occurrence is appended and no row is locked; only the inserts of a new key wait for each other, in the order of keys.
-- (ON CONFLICT alone would wait for an update of the open incident.)
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::int[])
        AS g (org_id, rule, fingerprint, severity, title, cause, dag_name, job_name, task_type, error_fingerprint, job_id, task_id,
            times)
),
opened AS (
    INSERT INTO incidents (org_id, rule, fingerprint, severity, title, cause, dag_name, job_name, task_type,
        error_fingerprint, job_id, task_id, count, opened_at, last_at, tags)
    SELECT g.*, coalesce($14::timestamptz, now()), coalesce($14::timestamptz, now()), ARRAY(
        SELECT e.key || '=' || e.value FROM jobs j CROSS JOIN LATERAL jsonb_each_text(j.tags) AS e
        WHERE j.id = g.job_id ORDER BY e.key)
    FROM given g WHERE (
        SELECT i.id FROM incidents i WHERE i.org_id = g.org_id AND i.rule = g.rule AND i.fingerprint = g.fingerprint
          AND i.closed_at IS NULL LIMIT 1) IS NULL
    ORDER BY org_id, rule, fingerprint
    ON CONFLICT (org_id, rule, fingerprint) WHERE closed_at IS NULL DO NOTHING
    RETURNING org_id, rule, fingerprint
),
counted AS (
    INSERT INTO incident_occurrences (org_id, rule, fingerprint, job_id, task_id, count, at)
    SELECT org_id, rule, fingerprint, job_id, task_id, times, coalesce($14::timestamptz, now()) FROM given g
    WHERE NOT EXISTS (
        SELECT FROM opened o WHERE (o.org_id, o.rule, o.fingerprint) = (g.org_id, g.rule, g.fingerprint))
)
SELECT count(*) FROM opened

-- name: has_incident_work
-- Whether there are open incidents, occurrences, dead sources, and datasets or jobs that have become late.
SELECT EXISTS (SELECT FROM incidents WHERE closed_at IS NULL) OR EXISTS (SELECT FROM incident_occurrences)
    OR EXISTS (SELECT FROM job_definitions WHERE status = 'Dead')
    OR EXISTS (SELECT FROM dataset_freshness WHERE missed_at IS NULL AND due_at <= coalesce($1::timestamptz, now()))
    OR (SELECT true FROM jobs WHERE completed_at IS NULL AND due_at <= coalesce($1::timestamptz, now()) AND missed_at IS NULL
        ORDER BY due_at LIMIT 1) IS NOT NULL

-- name: add_occurrences
-- Add up to $1 occurrences to the counts of their incidents. Those after the end of an incident open it again, with the
-- texts of the last one: the transaction that recorded them had found it open. The cause is always that of `task_id`, by
-- which it is hidden: both stay if that task has no error any more, since it was retried. Returns how many were added.
WITH taken AS (
    DELETE FROM incident_occurrences WHERE id = ANY (ARRAY(
        SELECT id FROM incident_occurrences ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING *
),
totals AS (
    SELECT org_id, rule, fingerprint, sum(count) AS times, max(at) AS last_at, count(*) AS rows,
        (array_agg(job_id ORDER BY id DESC))[1] AS job_id, (array_agg(task_id ORDER BY id DESC))[1] AS task_id
    FROM taken GROUP BY org_id, rule, fingerprint
),
known AS MATERIALIZED (
    SELECT t.org_id, t.rule, t.fingerprint, t.times, t.last_at, i.id, i.severity, i.title, i.dag_name, i.job_name, i.task_type,
        i.error_fingerprint, i.tags, i.closed_at IS NOT NULL AND i.closed_at < t.last_at AS is_over,
        CASE WHEN t.task_id IS NULL OR e.error IS NOT NULL THEN t.job_id ELSE i.job_id END AS job_id,
        CASE WHEN t.task_id IS NULL OR e.error IS NOT NULL THEN t.task_id ELSE i.task_id END AS task_id,
        coalesce(e.error, i.cause) AS cause
    FROM totals t CROSS JOIN LATERAL (
        SELECT * FROM incidents i WHERE i.org_id = t.org_id AND i.rule = t.rule AND i.fingerprint = t.fingerprint
        ORDER BY i.id DESC LIMIT 1) AS i
    LEFT JOIN LATERAL (SELECT right(k.error, $2) AS error FROM tasks k WHERE k.id = t.task_id OFFSET 0) AS e ON true
),
added AS (
    UPDATE incidents i SET count = i.count + k.times, last_at = greatest(i.last_at, k.last_at), job_id = k.job_id,
        task_id = k.task_id, cause = k.cause
    FROM known k WHERE i.id = k.id AND i.id = ANY (ARRAY(SELECT id FROM known WHERE NOT is_over)) AND NOT k.is_over
),
opened AS (
    INSERT INTO incidents (org_id, rule, fingerprint, severity, title, cause, dag_name, job_name, task_type,
        error_fingerprint, tags, job_id, task_id, count, opened_at, last_at)
    SELECT org_id, rule, fingerprint, severity, title, cause, dag_name, job_name, task_type, error_fingerprint, tags, job_id,
        task_id, times, last_at, last_at
    FROM known WHERE is_over ORDER BY org_id, rule, fingerprint
    ON CONFLICT (org_id, rule, fingerprint) WHERE closed_at IS NULL DO UPDATE
        SET count = incidents.count + excluded.count, last_at = greatest(incidents.last_at, excluded.last_at)
)
SELECT coalesce(sum(rows), 0)::bigint FROM totals

-- name: close_recovered_incidents
-- Close those of the first $2 open incidents after the id $1 that had no occurrence for $3 seconds and are over, by their
-- rule: a later job of the same name, or a retry of the last one, has completed; no dead letter is left, and the last
-- task does not stay failed; the source is not Dead; the schedule or source was started; the definition of the alert was
-- removed; the dataset was updated; no such event is left. Others are closed by what opened them. Returns the number of closed ones, and the last id that was checked, NULL after the last one.
WITH checked AS MATERIALIZED (
    SELECT i.* FROM incidents i WHERE i.closed_at IS NULL AND i.id > $1 ORDER BY i.id LIMIT $2
),
over AS (
    SELECT i.id FROM checked i
    WHERE i.last_at <= coalesce($4::timestamptz, now()) - $3::float8 * interval '1 second' AND CASE
        WHEN i.rule IN ('job_failed', 'data_test_failed', 'deadline_missed') AND i.job_id IS NOT NULL THEN coalesce((
            SELECT true FROM (
                SELECT j.status, j.completed_at FROM jobs j WHERE j.org_id = i.org_id AND j.name = i.job_name
                ORDER BY j.id DESC LIMIT 20) AS j
            WHERE j.status = 'COMPLETED' AND j.completed_at > i.last_at LIMIT 1),
            (SELECT true FROM jobs j WHERE j.id = i.job_id AND j.status = 'COMPLETED' LIMIT 1), false)
        WHEN i.rule IN ('task_failed', 'data_test_failed') THEN coalesce((
            SELECT t.id FROM tasks t WHERE t.status = 'DEAD_LETTER' AND t.org_id = i.org_id
              AND t.error_fingerprint = i.error_fingerprint AND t.type = i.task_type LIMIT 1),
            (SELECT t.id FROM tasks t WHERE t.id = i.task_id AND t.status = 'FAILED' LIMIT 1)) IS NULL
        WHEN i.rule = 'source_dead' THEN (
            SELECT d.id FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
            WHERE c.org_id = i.org_id AND c.dag_name = i.dag_name AND d.dag_name || '.' || d.name = i.task_type
              AND d.status = 'Dead' LIMIT 1) IS NULL
        WHEN i.rule = 'start_failed' AND i.dag_name IS NULL THEN (
            SELECT s.id FROM schedules s WHERE s.org_id = i.org_id AND s.id::text = i.fingerprint AND s.error IS NOT NULL
            LIMIT 1) IS NULL
        WHEN i.rule = 'start_failed' THEN (
            SELECT d.id FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
            WHERE c.org_id = i.org_id AND c.dag_name = i.dag_name AND d.dag_name || '.' || d.name = i.task_type
              AND coalesce(d.last_event_at, '-infinity') <= i.last_at LIMIT 1) IS NULL
        WHEN i.rule = 'alert_raised' THEN (
            SELECT d.id FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
            WHERE c.org_id = i.org_id AND c.dag_name = i.dag_name AND d.dag_name || '.' || d.name = i.task_type
            LIMIT 1) IS NULL
        WHEN i.rule = 'deadline_missed' THEN (
            SELECT f.dataset_uuid FROM dataset_freshness f
            WHERE f.dataset_uuid = i.fingerprint::uuid AND f.missed_at IS NOT NULL LIMIT 1) IS NULL
        WHEN i.rule = 'event_unroutable' THEN (
            SELECT o.id FROM outbox o
            WHERE o.org_id = i.org_id AND o.status = 'Failed'
              AND (SELECT j.name FROM jobs j WHERE j.id = o.job_id) = i.job_name LIMIT 1) IS NULL
        ELSE false END
),
closed AS (
    UPDATE incidents SET closed_at = coalesce($4::timestamptz, now()), closed_by = 'recovery', snoozed_until = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM over)) AND closed_at IS NULL
    RETURNING id
)
SELECT (SELECT count(*) FROM closed) AS closed,
    (SELECT CASE WHEN count(*) = $2 THEN max(id) END FROM checked) AS last_id

-- name: close_incident_of_key
-- Close the open incident of the rule $2 and the fingerprint $3 of the org $1: its cause reports that it is over.
UPDATE incidents SET closed_at = coalesce($4::timestamptz, now()), closed_by = 'recovery', snoozed_until = NULL
WHERE org_id = $1 AND rule = $2 AND fingerprint = $3 AND closed_at IS NULL
RETURNING id

-- name: list_dead_sources
-- Sources of serving versions that have been Dead, without a heartbeat, for $1 seconds, and have no open incident.
SELECT d.org_id, d.dag_name, d.name, d.last_heartbeat FROM job_definitions d
JOIN dag_current_versions c ON c.dag_version_id = d.dag_version_id
WHERE d.status = 'Dead' AND d.activation = 'source'
  AND coalesce(d.last_heartbeat, d.updated_at) <= coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'
  AND (SELECT i.id FROM incidents i WHERE i.org_id = d.org_id AND i.rule = 'source_dead'
    AND i.task_type = d.dag_name || '.' || d.name AND i.closed_at IS NULL LIMIT 1) IS NULL
ORDER BY d.org_id, d.dag_name, d.name LIMIT 1000

-- name: take_overdue_jobs
-- Mark up to $1 jobs that have passed the end of their deadline; their incidents are opened in this transaction.
UPDATE jobs SET missed_at = coalesce($2::timestamptz, now())
WHERE id = ANY (ARRAY(
    SELECT id FROM jobs WHERE completed_at IS NULL AND due_at <= coalesce($2::timestamptz, now()) AND missed_at IS NULL
    ORDER BY due_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id, org_id, name, due_at, (SELECT v.dag_name FROM dag_versions v WHERE v.id = dag_version_id) AS dag_name

-- name: get_job_of_event
-- The job of the event $1, for its incident.
SELECT o.org_id, o.job_id, j.name, v.dag_name FROM outbox o LEFT JOIN jobs j ON j.id = o.job_id
LEFT JOIN dag_versions v ON v.id = j.dag_version_id WHERE o.id = $1

-- name: get_definition_of_task
-- The definition and the job of the task $1.
SELECT d.dag_name, d.name, (SELECT j.name FROM jobs j WHERE j.id = t.job_id) AS job_name
FROM tasks t JOIN job_definitions d ON d.id = t.definition_id WHERE t.id = $1

-- name: list_incidents
-- Incidents of the org $1 before the id $2, newest first, at most $3: open ones, acknowledged or not ($4), of the rule $5
-- (NULL: any); closed ones too if $6.
SELECT {incidents.*} FROM incidents
WHERE org_id = $1 AND id < $2 AND ($6 OR closed_at IS NULL)
  AND ($4::boolean IS NULL OR (acknowledged_at IS NOT NULL) = $4) AND ($5::text IS NULL OR rule = $5)
ORDER BY org_id DESC, id DESC LIMIT $3

-- name: get_incident
SELECT {incidents.*} FROM incidents WHERE org_id = $1 AND id = $2

-- name: acknowledge_incident
-- Acknowledge the open incident $2 of the org $1 by $3; the first acknowledgement is kept.
UPDATE incidents SET acknowledged_at = coalesce(acknowledged_at, now()), acknowledged_by = coalesce(acknowledged_by, $3),
    escalate_at = NULL
WHERE org_id = $1 AND id = $2 AND closed_at IS NULL RETURNING {incidents.*}

-- name: snooze_incident
-- Snooze the open incident $2 of the org $1 for $3 seconds.
UPDATE incidents SET snoozed_until = now() + $3::float8 * interval '1 second'
WHERE org_id = $1 AND id = $2 AND closed_at IS NULL RETURNING {incidents.*}

-- name: close_incident
-- Close the open incident $2 of the org $1 by $3.
UPDATE incidents SET closed_at = now(), closed_by = $3, snoozed_until = NULL
WHERE org_id = $1 AND id = $2 AND closed_at IS NULL RETURNING {incidents.*}

-- name: delete_old_incidents
-- Delete up to $2 incidents that were closed more than $1 seconds ago.
DELETE FROM incidents WHERE id = ANY (ARRAY(
    SELECT id FROM incidents WHERE closed_at IS NOT NULL
      AND closed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY closed_at LIMIT $2 FOR UPDATE SKIP LOCKED))

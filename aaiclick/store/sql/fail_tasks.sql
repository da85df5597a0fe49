-- name: fail_tasks
-- End attempts that did not succeed. The final failure of a task that is not critical is passed over: its dependents
-- advance. A task with a cancellation request is cancelled; a permanent error ends it; too many charged failures make
-- it a dead letter; otherwise it is retried after the delay of its type's policy, unless the task has a policy, from
-- which the caller has computed the delay $7. $10 is set by the reaper: only a lease that has expired is ended.
--
-- The delay of an uncharged end doubles with each consecutive one, up to $15 seconds. After $13 consecutive ones that
-- span more than $14 seconds the task is a dead letter. A task without retries that is not repeatable is charged in any
-- case if its code has begun: it would run twice.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[], $4::text[], $5::text[], $6::boolean[], $7::float8[],
        $8::boolean[], $9::float8[], $10::boolean[], $11::attempt_outcome[])
        AS g (id, attempt, token, error, fingerprint, permanent, delay, charged, seconds, expired, outcome)
),
judged AS MATERIALIZED (
    SELECT t.id, t.passed_over, g.fingerprint, (SELECT w.log_directory || '/' || t.id || '.log' FROM workers w WHERE w.id = t.worker_id) AS log_path,
        t.worker_id, t.claimed_at, c.charged OR r.exhausted AS charged,
        CASE WHEN r.exhausted THEN format('%s attempts in a row since %s ended without a result and were not charged. '
            'The last one: %s', r.times + 1, to_char(r.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC'), g.error)
            WHEN c.charged AND NOT g.charged THEN g.error || E'\nIt is not run again: it has no retries and is not repeatable.'
            ELSE g.error END AS error,
        CASE WHEN g.seconds IS NULL THEN t.started_at
            ELSE greatest(t.claimed_at, coalesce($12::timestamptz, now()) - g.seconds * interval '1 second') END AS started_at,
        coalesce($12::timestamptz, now()) + interval '1 second' * CASE
            WHEN c.charged AND t.retry_policy IS NULL AND p.base_seconds IS NOT NULL
            THEN least(p.base_seconds * power(2::float8, least(t.failures + 1, 62)), p.cap_seconds) * (1 + 0.1 * random())
            WHEN c.charged THEN g.delay
            ELSE least(g.delay * power(2::float8, least(r.times, 62)), greatest(g.delay, $15::float8))
                * (1 + 0.1 * random()) END AS retry_at,
        CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
             WHEN g.permanent THEN 'FAILED'
             WHEN r.exhausted OR (c.charged AND t.failures + 1 >= t.max_attempts) THEN 'DEAD_LETTER'
             ELSE 'RETRY' END AS verdict,
        CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'CANCELLED' WHEN r.exhausted THEN 'FAILED'
            WHEN c.charged AND g.outcome = 'RELEASED' THEN 'FAILED' ELSE g.outcome END AS outcome
    FROM given g CROSS JOIN LATERAL (
        SELECT * FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
          AND (NOT g.expired OR t.lease_expires_at <= coalesce($12::timestamptz, now()))
        FOR NO KEY UPDATE) t
    CROSS JOIN LATERAL (SELECT g.charged OR (t.max_attempts = 1 AND NOT t.repeatable AND t.started_at IS NOT NULL
        AND t.cancel_requested_at IS NULL) AS charged) c
    LEFT JOIN LATERAL (
        SELECT (y.retry_policy ->> 'base_seconds')::float8 AS base_seconds,
            (y.retry_policy ->> 'cap_seconds')::float8 AS cap_seconds
        FROM task_types y WHERE y.org_id = t.org_id AND y.name = t.type) p ON true
    LEFT JOIN LATERAL (
        SELECT count(*) AS times, min(a.ended_at) AS since, coalesce(count(*) >= $13::int
            AND min(a.ended_at) <= coalesce($12::timestamptz, now()) - $14::float8 * interval '1 second', false)
            AS exhausted
        FROM task_attempts a
        WHERE NOT c.charged AND a.task_id = t.id AND a.started_at IS NOT NULL
          -- Rows from before the task was cleared do not count.
          AND a.ended_at > coalesce($12::timestamptz, now()) - 2 * $14::float8 * interval '1 second'
          AND a.attempt > coalesce((
            SELECT max(c.attempt) FROM task_attempts c WHERE c.task_id = t.id AND c.charged), 0)) r ON true
),
ended AS (
    UPDATE tasks t SET
        status = CASE j.verdict WHEN 'RETRY' THEN 'FAILED' ELSE j.verdict END::task_status,
        readiness = CASE j.verdict WHEN 'RETRY' THEN 'TIME' END::task_readiness,
        available_at = CASE j.verdict WHEN 'RETRY' THEN j.retry_at ELSE t.available_at END,
        next_retry_at = CASE j.verdict WHEN 'RETRY' THEN j.retry_at END,
        completed_at = CASE j.verdict WHEN 'RETRY' THEN NULL ELSE coalesce($12::timestamptz, now()) END,
        passed_over = t.passed_over OR (NOT t.critical AND j.verdict IN ('FAILED', 'DEAD_LETTER')),
        failures = t.failures + (j.charged AND t.failures < t.max_attempts)::int, lease_token = NULL,
        started_at = j.started_at, error = j.error, error_fingerprint = j.fingerprint,
        updated_at = coalesce($12::timestamptz, now())
    FROM judged j WHERE t.id = j.id AND t.id = ANY (ARRAY(SELECT id FROM judged))
    RETURNING t.id, t.attempt, t.org_id, t.job_id, t.group_id, t.has_dependents, t.concurrency_key, CASE
            WHEN t.critical OR j.verdict NOT IN ('FAILED', 'DEAD_LETTER') THEN j.verdict
            WHEN j.passed_over THEN 'PASSED_AGAIN' ELSE 'PASSED_OVER' END AS status, t.passed_over,
        t.queue, t.type, j.charged, j.outcome, j.worker_id, j.claimed_at, j.started_at, j.error, j.fingerprint, j.log_path
),
history AS (
    INSERT INTO task_attempts (task_id, attempt, charged, outcome, worker_id, claimed_at, started_at, ended_at, error,
        error_fingerprint, log_path)
    SELECT id, attempt, charged, outcome, worker_id, claimed_at, started_at, coalesce($12::timestamptz, now()), error,
        fingerprint, log_path FROM ended
)
SELECT id, org_id, job_id, group_id, has_dependents, concurrency_key, status, queue, passed_over,
    has_dependents AND coalesce((
        SELECT true FROM dependencies d WHERE d.previous_id = ended.id AND d.next_type > 'task' LIMIT 1), false) AS gates,
    -- For the error of the job: the line of a traceback that names the error, else the first line.
    CASE WHEN status IN ('FAILED', 'DEAD_LETTER') AND job_id IS NOT NULL THEN
        left(format('%s (task %s) failed in attempt %s: %s', type, id, attempt,
            split_part(regexp_replace(regexp_replace(error, '^  \+ Exception Group Traceback .*?\n  \| (?=\S)', ''),
                '^.*\n[ \t][^\n]*\n(?=\S)', ''), E'\n', 1)), 1000) END AS cause
FROM ended

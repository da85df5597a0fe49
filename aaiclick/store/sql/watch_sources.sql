-- How sources that always run stand at $1, told by their newest task. Running: its lease is kept. Dead: the lease is not kept,
-- or the run failed, and another attempt or run is to come. Draining: it goes on although its DAG is paused or another
-- version serves. Returns those that have died.
WITH known AS (
    SELECT d.id, d.status, d.heartbeat_timeout_seconds, EXISTS (
        SELECT FROM dag_current_versions c WHERE c.dag_version_id = d.dag_version_id AND c.paused_at IS NULL) AS wanted
    FROM job_definitions d
    WHERE d.activation = 'source' AND d.source ->> 'kind' = 'always_on' AND (d.status <> 'Pending' OR EXISTS (
        SELECT FROM dag_current_versions c WHERE c.dag_version_id = d.dag_version_id))
),
seen AS (
    SELECT k.id, k.status AS before, t.last_heartbeat, CASE
        WHEN t.lease_token IS NOT NULL AND NOT k.wanted THEN 'Draining'
        WHEN t.lease_token IS NOT NULL AND t.lease_expires_at > clock.now AND coalesce(t.last_heartbeat
            > clock.now - interval '1 second' * k.heartbeat_timeout_seconds, true) THEN 'Running'
        WHEN t.lease_token IS NOT NULL THEN 'Dead'
        WHEN k.wanted AND t.completed_at IS NULL AND t.failures > 0 THEN 'Dead'
        WHEN k.wanted AND t.status IN ('FAILED', 'DEAD_LETTER') THEN 'Dead'
        ELSE 'Pending' END::definition_status AS status
    FROM known k CROSS JOIN (SELECT coalesce($1::timestamptz, now()) AS now) AS clock
    LEFT JOIN LATERAL (
        SELECT t.lease_token, t.lease_expires_at, t.last_heartbeat, t.completed_at, t.failures, t.status FROM tasks t
        WHERE t.definition_id = k.id ORDER BY t.id DESC LIMIT 1) AS t ON true
),
changed AS (
    UPDATE job_definitions d SET status = s.status, last_heartbeat = coalesce(s.last_heartbeat, d.last_heartbeat),
        updated_at = now()
    FROM seen s WHERE d.id = s.id AND (d.status <> s.status OR s.last_heartbeat IS DISTINCT FROM d.last_heartbeat
        AND s.last_heartbeat IS NOT NULL)
    RETURNING d.id, s.before, d.status
)
SELECT count(*) FROM changed WHERE status = 'Dead' AND before <> 'Dead'

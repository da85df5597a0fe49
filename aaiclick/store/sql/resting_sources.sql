-- Sources that always run, of DAGs that are not paused, none of whose runs goes on; each rests a moment between two.
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

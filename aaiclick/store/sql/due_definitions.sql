-- Cron sources whose time has come, of DAGs that are not paused; and how many of their runs have not ended.
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

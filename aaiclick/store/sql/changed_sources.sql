-- Cron sources of the version $1 whose outputs were made for it and are empty: one run fills them.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime, d.operator,
    (d.scaling ->> 'max_concurrency')::int AS max_concurrency
FROM job_definitions d
WHERE d.dag_version_id = $1 AND d.activation = 'source' AND d.source ->> 'kind' = 'cron' AND EXISTS (
    SELECT FROM dag_version_datasets p JOIN dataset_versions v ON v.id = p.dataset_version
    WHERE p.dag_version_id = $1 AND p.dataset_uuid = ANY (d.output_datasets::uuid[])
      AND v.dag_version_id = $1 AND v.ticket = 0)
ORDER BY d.name

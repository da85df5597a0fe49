-- The reactive definitions that read a generation of a dataset, of the versions that serve; or, while a version is
-- filled ($4), those of that version whose outputs are made for it. Only what is named by $5, if something is.
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

-- A definition, as a task of it sees it. What it remembers is kept with the first definition that made the same: a version
-- that leaves a job as it was goes on from there.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.activation, d.operator, d.execution_strategy,
    d.update_strategy, d.unique_key, d.config_hash, d.spec, (
        SELECT h.id FROM job_definitions h
        WHERE h.org_id = d.org_id AND h.dag_name = d.dag_name AND h.name = d.name AND h.config_hash = d.config_hash
          AND (SELECT array_agg(p.dataset_version ORDER BY p.dataset_version) FROM dag_version_datasets p
               WHERE p.dag_version_id = h.dag_version_id AND p.dataset_uuid = ANY (h.output_datasets::uuid[]))
            IS NOT DISTINCT FROM
              (SELECT array_agg(p.dataset_version ORDER BY p.dataset_version) FROM dag_version_datasets p
               WHERE p.dag_version_id = d.dag_version_id AND p.dataset_uuid = ANY (d.output_datasets::uuid[]))
        ORDER BY h.created_at, h.id LIMIT 1) AS memory
FROM job_definitions d WHERE d.id = $1

-- Unfinished tasks of the version $1 that make nothing the version $2 serves; they are in jobs that are not finished either.
SELECT t.id FROM job_definitions d JOIN jobs j ON j.org_id = d.org_id AND j.completed_at IS NULL CROSS JOIN LATERAL (
    SELECT t.id FROM tasks t
    WHERE t.job_id = j.id AND t.definition_id IS NOT DISTINCT FROM d.id AND t.completed_at IS NULL) AS t
WHERE d.dag_version_id = $1 AND NOT EXISTS (
    SELECT FROM dag_version_datasets p JOIN dag_version_datasets q ON q.dataset_version = p.dataset_version
    WHERE p.dag_version_id = $1 AND p.dataset_uuid = ANY (d.output_datasets::uuid[]) AND q.dag_version_id = $2)
ORDER BY t.id

-- Unfinished tasks of the version $1 that make nothing the version $2 serves.
SELECT t.id FROM job_definitions d
JOIN tasks t ON t.definition_id = d.id AND t.completed_at IS NULL
WHERE d.dag_version_id = $1 AND NOT EXISTS (
    SELECT FROM dag_version_datasets p JOIN dag_version_datasets q ON q.dataset_version = p.dataset_version
    WHERE p.dag_version_id = $1 AND p.dataset_uuid = ANY (d.output_datasets::uuid[]) AND q.dag_version_id = $2)
ORDER BY t.id

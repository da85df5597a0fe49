-- The definition that makes the dataset $1 in the version that serves, and an input to start it by.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.activation, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime,
    d.operator, (d.scaling ->> 'max_concurrency')::int AS max_concurrency, p.dataset_version, i.dataset, i.generation
FROM datasets s
JOIN dag_current_versions c ON c.org_id = s.org_id AND c.dag_name = s.producer_dag_name
JOIN job_definitions d ON d.dag_version_id = c.dag_version_id AND d.name = s.producer_job_name
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = s.id
LEFT JOIN LATERAL (
    SELECT n.id AS dataset, q.dataset_version AS generation
    FROM datasets n JOIN dag_current_versions k ON k.org_id = n.org_id AND k.dag_name = n.producer_dag_name
    JOIN dag_version_datasets q ON q.dag_version_id = k.dag_version_id AND q.dataset_uuid = n.id
    WHERE n.id = ANY (d.input_datasets::uuid[]) ORDER BY n.id LIMIT 1) AS i ON true
WHERE s.id = $1

-- The latest tasks that made a dataset, of every version of its producer.
SELECT t.id, t.job_id, t.status::text, t.outputs, t.partitions, t.started_at, t.completed_at, t.error
FROM datasets s JOIN job_definitions d ON d.org_id = s.org_id AND d.dag_name = s.producer_dag_name
    AND d.name = s.producer_job_name
JOIN tasks t ON t.definition_id = d.id
WHERE s.id = $1 ORDER BY t.id DESC LIMIT $2

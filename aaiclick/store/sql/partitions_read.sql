-- The jobs whose tasks have read the partitions $3 of the dataset $2 since they changed ($4), as the definition $1 or as
-- one of the same name that made the same.
SELECT DISTINCT ON (u.key) u.key, t.job_id AS id, t.status::text
FROM unnest($3::text[], $4::timestamptz[]) AS u (key, changed)
JOIN task_inputs i ON i.input_dataset_uuid = $2 AND i.input_partition_key = u.key AND i.input_version >= u.changed
JOIN tasks t ON t.id = i.task_id
JOIN job_definitions d ON d.id = t.definition_id
JOIN job_definitions o ON o.id = $1
WHERE t.status = 'COMPLETED' AND d.org_id = o.org_id AND d.dag_name = o.dag_name AND d.name = o.name AND d.config_hash = o.config_hash
ORDER BY u.key, i.input_version DESC

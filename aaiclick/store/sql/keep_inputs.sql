INSERT INTO task_inputs (task_id, input_dataset_uuid, input_partition_key, input_version)
SELECT $1, dataset, partition, version FROM unnest($2::uuid[], $3::text[], $4::timestamptz[]) AS u (dataset, partition, version)
ON CONFLICT DO NOTHING

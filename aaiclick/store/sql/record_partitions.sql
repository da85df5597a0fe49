-- The partitions $3 of the generation $1 were updated with the ticket $2 by the task $7, unless somebody was newer.
INSERT INTO dataset_partitions AS p
    (dataset_version, partition_key, ticket, recorded_ticket, rows, digest, inputs_hash, task_id, updated_at)
SELECT $1, u.key, $2, $2, u.rows, u.digest, u.inputs_hash, $7, now()
FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[]) AS u (key, rows, digest, inputs_hash)
ON CONFLICT (dataset_version, partition_key) DO UPDATE SET ticket = excluded.ticket,
    recorded_ticket = excluded.recorded_ticket, rows = excluded.rows, digest = excluded.digest,
    inputs_hash = excluded.inputs_hash, task_id = excluded.task_id, updated_at = excluded.updated_at
WHERE p.ticket <= excluded.ticket

-- What is known of the partitions of the generation $1: of all of them, or of those named by $2.
SELECT partition_key, ticket, recorded_ticket, rows, digest, inputs_hash, task_id, updated_at FROM dataset_partitions
WHERE dataset_version = $1 AND ($2::text[] IS NULL OR partition_key = ANY ($2::text[])) ORDER BY partition_key

-- The partition $2 of the generation $1 is about to get the rows of the ticket $3; no row if it has newer ones.
INSERT INTO dataset_partitions (dataset_version, partition_key, ticket) VALUES ($1, $2, $3)
ON CONFLICT (dataset_version, partition_key) DO UPDATE SET ticket = excluded.ticket
WHERE dataset_partitions.ticket <= excluded.ticket
RETURNING partition_key

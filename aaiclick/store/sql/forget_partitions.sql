-- A whole generation $1 was made anew with the ticket $2: partitions other than $3 are gone.
DELETE FROM dataset_partitions WHERE dataset_version = $1 AND ticket <= $2 AND partition_key <> ALL ($3::text[])

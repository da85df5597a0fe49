-- The generation $1 was updated with the ticket $2; its rows are $5, or what its partitions have together.
UPDATE dataset_versions SET columns = $3::jsonb, schema_hash = $4, ticket = $2, updated_at = now(),
    rows = coalesce($5::bigint, (SELECT sum(p.rows) FROM dataset_partitions p WHERE p.dataset_version = $1))
WHERE id = $1 AND ticket <= $2

-- The generation $1 was updated with the ticket $2: its rows are what its partitions have together, or $5 where it has
-- none that are counted. Of an update that was overtaken, only its partitions count.
UPDATE dataset_versions v SET
    columns = CASE WHEN v.ticket <= $2 THEN $3::jsonb ELSE v.columns END,
    schema_hash = CASE WHEN v.ticket <= $2 THEN $4 ELSE v.schema_hash END,
    rows = CASE WHEN $5::bigint IS NULL
        THEN (SELECT sum(p.rows) FROM dataset_partitions p WHERE p.dataset_version = $1)
        WHEN v.ticket <= $2 THEN $5 ELSE v.rows END,
    ticket = greatest(v.ticket, $2), updated_at = now()
WHERE v.id = $1

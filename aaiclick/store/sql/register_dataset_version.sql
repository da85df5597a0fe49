-- A version like $1 that holds the range $4 to $5, at the location $3 (NULL: where $1 is); no row if there is one.
INSERT INTO dataset_versions (id, dataset_uuid, storage_location, config_hash, schema_hash, range_start, range_end)
SELECT $2, v.dataset_uuid, coalesce($3::text, v.storage_location), v.config_hash, v.schema_hash, $4::bigint, $5::bigint
FROM dataset_versions v WHERE v.id = $1
ON CONFLICT (dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]')) DO NOTHING
RETURNING id

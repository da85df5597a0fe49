SELECT id, created_at, storage_location, config_hash, schema_hash, range_start, range_end
FROM dataset_versions WHERE dataset_uuid = $1 ORDER BY created_at DESC, id LIMIT $2

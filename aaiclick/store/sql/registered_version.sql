-- The version with the configuration of $1 that holds the range $2 to $3.
SELECT r.id, r.storage_location FROM dataset_versions v
JOIN dataset_versions r ON r.dataset_uuid = v.dataset_uuid AND r.config_hash = v.config_hash
WHERE v.id = $1 AND r.range_start IS NOT DISTINCT FROM $2::bigint AND r.range_end IS NOT DISTINCT FROM $3::bigint

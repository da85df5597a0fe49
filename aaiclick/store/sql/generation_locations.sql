-- The location of the generation $1, and those of registered ranges of its dataset with the same configuration.
SELECT DISTINCT ON (r.range_start, r.range_end, r.storage_location) r.storage_location
FROM dataset_versions v JOIN dataset_versions r ON r.dataset_uuid = v.dataset_uuid AND r.config_hash = v.config_hash
WHERE v.id = $1 AND (r.id = v.id OR r.storage_location <> v.storage_location)
ORDER BY r.range_start NULLS FIRST, r.range_end, r.storage_location

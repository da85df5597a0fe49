-- A version with the configuration of $1 and a location of its own whose range has positions of $2 to $3, and is another one.
SELECT r.range_start, r.range_end FROM dataset_versions v
JOIN dataset_versions r ON r.dataset_uuid = v.dataset_uuid AND r.config_hash = v.config_hash
    AND r.storage_location <> v.storage_location
WHERE v.id = $1
  AND numrange(r.range_start::numeric, r.range_end::numeric, '[]') && numrange($2::bigint::numeric, $3::bigint::numeric, '[]')
  AND (r.range_start IS DISTINCT FROM $2 OR r.range_end IS DISTINCT FROM $3)
LIMIT 1

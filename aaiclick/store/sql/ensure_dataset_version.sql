-- The generation of a dataset that is made in a given way; `made` says that there was none yet.
WITH made AS (
    INSERT INTO dataset_versions (id, dataset_uuid, storage_location, config_hash, dag_version_id, range_start, range_end)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]')) DO NOTHING
    RETURNING id
)
SELECT id, true AS made FROM made
UNION ALL
SELECT id, false FROM dataset_versions
WHERE dataset_uuid = $2 AND config_hash = $4 AND range_start IS NOT DISTINCT FROM $6 AND range_end IS NOT DISTINCT FROM $7
  AND NOT EXISTS (SELECT FROM made)

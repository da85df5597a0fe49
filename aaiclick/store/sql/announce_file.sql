-- An attempt ($3, $4) is about to write the file $2 of the generation $1: known before it is there, it is never lost.
INSERT INTO loose_files (dataset_version, name, org_id, location, task_id, attempt)
SELECT v.id, $2, d.org_id, v.storage_location, $3, $4
FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid WHERE v.id = $1
ON CONFLICT (dataset_version, name) DO NOTHING

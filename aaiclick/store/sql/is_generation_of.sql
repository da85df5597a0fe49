-- Whether $1 is a generation of one of the datasets $2.
SELECT EXISTS (SELECT FROM dataset_versions WHERE id = $1 AND dataset_uuid = ANY ($2::uuid[]))

-- Whether one of the roles $3 of the org $2 may read every dataset that the version $1 of a DAG makes or reads, and every one
-- that has one of the names $4 by now. What is no longer in the catalogue may be read by nobody.
SELECT NOT EXISTS (
    SELECT FROM (
        SELECT unnest(coalesce(f.input_datasets, '{}') || coalesce(f.output_datasets, '{}')) AS id FROM job_definitions f
        WHERE f.dag_version_id = $1
        UNION SELECT p.dataset_uuid::text FROM dag_version_datasets p WHERE p.dag_version_id = $1
    ) AS named LEFT JOIN datasets d ON d.id::text = named.id AND d.org_id = $2
    WHERE d.id IS NULL OR NOT d.read_roles && $3::text[]
) AND NOT EXISTS (
    SELECT FROM datasets d WHERE d.org_id = $2 AND d.name = ANY ($4::text[]) AND NOT d.read_roles && $3::text[]
)

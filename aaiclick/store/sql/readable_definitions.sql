-- Of each of the definitions $1 of the org $2: which of its outputs, by the names that it has for them, one of the roles $3
-- may read, and whether these may read everything that it makes and reads.
SELECT f.id,
    ARRAY(
        SELECT f.spec -> 'outputs' -> (o.nth - 1)::int ->> 'name'
        FROM unnest(f.output_datasets) WITH ORDINALITY AS o (id, nth)
        JOIN datasets d ON d.id::text = o.id AND d.org_id = f.org_id
        WHERE d.read_roles && $3::text[]) AS outputs,
    NOT EXISTS (
        SELECT FROM unnest(coalesce(f.input_datasets, '{}') || coalesce(f.output_datasets, '{}')) AS n (id)
        LEFT JOIN datasets d ON d.id::text = n.id AND d.org_id = f.org_id
        WHERE d.id IS NULL OR NOT d.read_roles && $3::text[]) AS everything
FROM job_definitions f WHERE f.id = ANY ($1::uuid[]) AND f.org_id = $2

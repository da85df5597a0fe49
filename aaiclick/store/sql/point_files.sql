-- The generation $1 is these files from now on: those that it was, without those that are replaced (mode $2: all of them, those
-- of the slice $3, or none), without those named by $4, and with the new ones $5. Its columns are $6. What it no longer is is
-- loose from now on, what it has become no longer.
WITH before AS MATERIALIZED (
    SELECT f.file ->> 'name' AS name FROM dataset_versions v CROSS JOIN LATERAL jsonb_array_elements(v.files) AS f (file)
    WHERE v.id = $1
),
pointed AS (
    UPDATE dataset_versions SET columns = $6, files = coalesce((
        SELECT jsonb_agg(f.file ORDER BY f.nth) FROM jsonb_array_elements(files) WITH ORDINALITY AS f (file, nth)
        WHERE f.file ->> 'name' <> ALL ($4::text[])
          AND CASE $2::text WHEN 'append' THEN true WHEN 'slice' THEN f.file ->> 'slice' <> $3 ELSE false END), '[]') || $5::jsonb
    WHERE id = $1
    RETURNING id, dataset_uuid, storage_location,
        ARRAY(SELECT f.file ->> 'name' FROM jsonb_array_elements(files) AS f (file)) AS names
),
bound AS (
    DELETE FROM loose_files l USING pointed p WHERE l.dataset_version = $1 AND l.name = ANY (p.names)
)
INSERT INTO loose_files (dataset_version, name, org_id, location, replaced_at)
SELECT p.id, b.name, d.org_id, p.storage_location, now()
FROM pointed p JOIN datasets d ON d.id = p.dataset_uuid JOIN before b ON b.name <> ALL (p.names)

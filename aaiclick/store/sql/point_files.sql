-- The generation $1 is these files from now on: those that it was, without those that are replaced (mode $2: all of them, those
-- of the slice $3, or none), without those named by $4, and with the new ones $5. Its columns are $6.
UPDATE dataset_versions SET columns = $6, files = coalesce((
    SELECT jsonb_agg(f.file ORDER BY f.nth) FROM jsonb_array_elements(files) WITH ORDINALITY AS f (file, nth)
    WHERE f.file ->> 'name' <> ALL ($4::text[])
      AND CASE $2::text WHEN 'append' THEN true WHEN 'slice' THEN f.file ->> 'slice' <> $3 ELSE false END), '[]') || $5::jsonb
WHERE id = $1

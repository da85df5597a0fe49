-- The generation $1 is what another program has written at the locations $2; its columns are $3.
UPDATE dataset_versions SET files = $2::jsonb, columns = $3::jsonb WHERE id = $1

INSERT INTO column_lineage (output_dataset_uuid, output_column, input_dataset_uuid, input_column, definition_id)
SELECT $1, u.output_column, u.input_dataset, u.input_column, $5
FROM unnest($2::text[], $3::uuid[], $4::text[]) AS u (output_column, input_dataset, input_column)
ON CONFLICT DO NOTHING

SELECT l.output_column, l.input_column, d.id AS input_id, d.name AS input_name
FROM column_lineage l JOIN datasets d ON d.id = l.input_dataset_uuid
WHERE l.output_dataset_uuid = $1 ORDER BY 1, 4, 2 LIMIT 1000

SELECT output_dataset_uuid, output_column, input_dataset_uuid, input_column FROM column_lineage
WHERE output_dataset_uuid = ANY ($1::uuid[]) AND input_dataset_uuid = ANY ($1::uuid[]) ORDER BY 1, 2, 3, 4

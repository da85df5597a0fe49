DELETE FROM column_lineage WHERE output_dataset_uuid = $1

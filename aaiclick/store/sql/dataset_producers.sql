-- Datasets by name, as other DAGs refer to them.
SELECT id, name, producer_dag_name FROM datasets WHERE org_id = $1 AND name = ANY ($2::text[])

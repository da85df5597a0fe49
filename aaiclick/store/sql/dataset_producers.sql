-- Datasets by name, as other DAGs refer to them: those that one of the roles $3 may read (NULL: all).
SELECT id, name, producer_dag_name FROM datasets WHERE org_id = $1 AND name = ANY ($2::text[])
  AND ($3::text[] IS NULL OR read_roles && $3::text[])

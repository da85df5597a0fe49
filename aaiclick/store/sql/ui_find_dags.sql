-- At most $3 DAGs of the org $1 that serve, with $2 in their names.
SELECT dag_name FROM dag_current_versions WHERE org_id = $1 AND strpos(lower(dag_name), lower($2)) > 0
ORDER BY dag_name LIMIT $3

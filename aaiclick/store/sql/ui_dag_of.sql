SELECT dag_name FROM dag_versions WHERE id = $1

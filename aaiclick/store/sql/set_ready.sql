UPDATE dag_versions SET ready_at = coalesce(ready_at, now()) WHERE id = $1

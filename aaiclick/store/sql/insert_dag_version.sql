INSERT INTO dag_versions (id, org_id, dag_name, yaml_hash, yaml, created_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (org_id, dag_name, yaml_hash) DO NOTHING
RETURNING id

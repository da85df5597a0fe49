-- The text of a version: of the one that serves, if none is named.
SELECT v.id, v.yaml_hash, v.yaml, v.deploy_ticket
FROM dag_versions v
WHERE v.org_id = $1 AND v.dag_name = $2
  AND v.id = coalesce($3, (SELECT c.dag_version_id FROM dag_current_versions c WHERE c.org_id = $1 AND c.dag_name = $2))

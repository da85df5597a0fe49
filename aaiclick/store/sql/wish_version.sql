-- Somebody wants the version $1 to serve: later than everybody who said so of another one, the DAG's lock being held.
UPDATE dag_versions v SET deploy_ticket = 1 + (
    SELECT max(o.deploy_ticket) FROM dag_versions o WHERE o.org_id = v.org_id AND o.dag_name = v.dag_name)
WHERE v.id = $1

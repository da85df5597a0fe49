-- Somebody wants the version $1 to serve: later than everybody who said so of another one, the DAG's lock being held.
UPDATE dag_versions SET deploy_ticket = nextval('dataset_tickets') WHERE id = $1

-- A definition, as a task of it sees it.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.activation, d.operator, d.execution_strategy,
    d.update_strategy, d.unique_key, d.config_hash, d.spec
FROM job_definitions d WHERE d.id = $1

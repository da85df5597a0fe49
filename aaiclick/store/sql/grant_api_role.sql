-- What the role of the API may touch at all; which rows of it, the policies say. Sums of references and sessions are closed to it,
-- and what was written into the audit log, or counted of queues, stays.
GRANT SELECT, INSERT, UPDATE, DELETE ON orgs, queues, task_types, users, org_roles, org_role_memberships, api_keys, org_secrets,
    idempotency_keys, dag_versions, dag_current_versions, job_definitions, datasets, dataset_versions, dataset_partitions,
    dag_version_datasets, jobs, groups, tasks, dependencies, task_additions, task_attempts, workers, outbox, dispatches, task_inputs,
    column_lineage, operator_state, table_references TO aaiclick_api;
GRANT SELECT, INSERT ON audit_log TO aaiclick_api;
GRANT SELECT ON queue_minutes TO aaiclick_api;
GRANT USAGE ON SCHEMA public TO aaiclick_api

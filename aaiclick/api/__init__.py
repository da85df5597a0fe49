"""Schemas of the HTTP API, shared by the server, the client and workers.

They validate requests and make the OpenAPI document.

Snowflakes are strings, since JavaScript loses their last digits. Times are RFC 3339 with their zone.

- `field_types`: field types and base classes that several schemas share
- `jobs`: jobs
- `job_html`: a job as HTML, for notebooks
- `tasks`: tasks
- `workers`: workers, queues and task types
- `schedules`: schedules of jobs and queue items
- `job_functions`: `@job` functions that workers have registered
- `json_schema_limits`: limits of the JSON Schemas of parameters
- `dead_letters`: dead letters and the outbox
- `workflow_events`: events that tasks wait for
- `approvals`: approvals, decisions and one-time links
- `approval_forms`: forms of approvals as flat JSON Schemas
- `dags`: DAG files, versions, deploys, runs and backfills
- `incidents`: incidents
- `notifications`: channels, rules and messages of notifications
- `data_tests`: results of data tests
- `freshness`: freshness of datasets
- `datasets`: datasets, their lineage and queries over them
- `objects`: Objects and their rows
- `tenancy`: organisations, users, roles, API keys, secrets and the audit log
- `health`: health checks
- `worker_protocol`: requests and responses of HTTP workers

Next: aaiclick.server.routes, which receives and returns them.
"""

"""Schemas of the HTTP API, shared by the server, the client and workers.

They validate requests and make the OpenAPI document.

Snowflakes are strings, since JavaScript loses their last digits. Times are RFC 3339 with their zone.

- `field_types`: field types and base classes that several schemas share
- `jobs`: jobs
- `tasks`: tasks
- `workers`: workers, queues and task types
- `schedules`: schedules of jobs and queue items
- `dead_letters`: dead letters and the outbox
- `events`: events that tasks wait for
- `dags`: DAG files, versions, deploys, runs and backfills
- `datasets`: datasets, their lineage and queries over them
- `objects`: Objects and their rows
- `orgs`: organisations, users, roles, API keys, secrets and the audit log
- `health`: health checks
- `worker_protocol`: requests and responses of HTTP workers

Next: aaiclick.server.routes, which receives and returns them.
"""

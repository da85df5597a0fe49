"""API routes, one module per resource; `ALL` lists them.

- `common`: connections of the caller's org, tables of arguments and ETags
- `jobs`: submit, list, cancel, retry and pause jobs
- `tasks`: enqueue, list, cancel, clear and explain tasks; read logs
- `dead_letters`: list, group, redrive and discard dead letters
- `events`: events that tasks wait for
- `outbox`: events that are pending or could not be routed
- `queues`: depths, limits, pause and resume of queues
- `task_types`: task types and their settings
- `workers`: list, get and drain workers
- `schedules`: create, list, pause, fire, backfill and sync schedules
- `worker_api`: protocol of workers without database credentials
- `objects`: list, schema, rows and export of Objects
- `live`: change feed as server-sent events
- `dags`: validate, diff, deploy, roll back, pause, run and backfill DAGs
- `datasets`: datasets, queries over them, lineage
- `webhooks`: a signed request starts a source of a DAG
- `orgs`: organisations
- `users`: users
- `roles`: dataset roles and their members
- `api_keys`: API keys
- `secrets`: set, list and delete secrets
- `audit`: audit log
- `health`: health checks and the OpenAPI document
- `metrics`: metrics for Prometheus

Next: aaiclick.operations, aaiclick.catalog and aaiclick.store; responses are schemas of aaiclick.api.
"""

from __future__ import annotations

from aaiclick.server.routes import (
    api_keys,
    audit,
    dags,
    datasets,
    dead_letters,
    events,
    health,
    jobs,
    live,
    metrics,
    objects,
    orgs,
    outbox,
    queues,
    roles,
    schedules,
    secrets,
    task_types,
    tasks,
    users,
    webhooks,
    workers,
)
from aaiclick.server.routes.worker_api import aliases, definitions, leases
from aaiclick.server.routes.worker_api import tasks as worker_tasks

ALL = (
    jobs.routes,
    tasks.routes,
    dead_letters.routes,
    events.routes,
    outbox.routes,
    queues.routes,
    task_types.routes,
    workers.routes,
    schedules.routes,
    objects.routes,
    live.routes,
    orgs.routes,
    users.routes,
    roles.routes,
    api_keys.routes,
    secrets.routes,
    audit.routes,
    dags.routes,
    datasets.routes,
    webhooks.routes,
    health.routes,
    metrics.routes,
    worker_tasks.routes,
    definitions.routes,
    leases.routes,
    aliases.routes,
)

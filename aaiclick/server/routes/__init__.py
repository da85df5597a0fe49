"""API routes, one module per resource; `ALL` lists them.

- `common`: connections of the caller's org, tables of arguments and ETags
- `jobs`: submit, list, cancel, retry and pause jobs
- `tasks`: enqueue, list, cancel, clear and explain tasks; read logs
- `dead_letters`: list, group, redrive and discard dead letters
- `workflow_events`: events that tasks wait for
- `approvals`: list and decide approvals; one-time links to them
- `outbox`: events that are pending or could not be routed
- `incidents`: list, acknowledge, snooze and close incidents
- `notifications`: channels, rules and messages of notifications
- `queues`: depths, limits, pause and resume of queues
- `task_types`: task types and their settings
- `workers`: list, get and drain workers
- `job_functions`: list, show and run job functions
- `schedules`: create, list, pause, fire, backfill and sync schedules
- `worker_api`: protocol of workers without database credentials
- `objects`: list, schema, rows and export of Objects
- `change_feed`: change feed as server-sent events
- `dags`: validate, diff, deploy, roll back, pause, run and backfill DAGs
- `data_tests`: results of data tests
- `freshness`: freshness of datasets
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
- `mcp`: tools for AI assistants

Next: aaiclick.operations, aaiclick.catalog and aaiclick.store; responses are schemas of aaiclick.api.
"""

from __future__ import annotations

from aaiclick.server.routes import (
    api_keys,
    approvals,
    audit,
    change_feed,
    dags,
    data_tests,
    datasets,
    dead_letters,
    freshness,
    health,
    incidents,
    job_functions,
    jobs,
    mcp,
    metrics,
    notifications,
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
    workflow_events,
)
from aaiclick.server.routes.worker_api import aliases, dag_tasks, registration_and_leases
from aaiclick.server.routes.worker_api import tasks as worker_tasks

ALL = (
    jobs.routes,
    tasks.routes,
    dead_letters.routes,
    workflow_events.routes,
    approvals.routes,
    outbox.routes,
    incidents.routes,
    notifications.routes,
    queues.routes,
    task_types.routes,
    workers.routes,
    schedules.routes,
    job_functions.routes,
    objects.routes,
    change_feed.routes,
    orgs.routes,
    users.routes,
    roles.routes,
    api_keys.routes,
    secrets.routes,
    audit.routes,
    dags.routes,
    datasets.routes,
    data_tests.routes,
    freshness.routes,
    webhooks.routes,
    health.routes,
    metrics.routes,
    mcp.routes,
    worker_tasks.routes,
    dag_tasks.routes,
    registration_and_leases.routes,
    aliases.routes,
)

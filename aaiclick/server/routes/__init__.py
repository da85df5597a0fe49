"""One module per resource; `ALL` is everything the API serves."""

from __future__ import annotations

from aaiclick.server.routes import (
    audit,
    dags,
    datasets,
    dead_letters,
    health,
    jobs,
    keys,
    live,
    metrics,
    objects,
    orgs,
    queues,
    roles,
    supervision,
    tasks,
    types,
    users,
    webhooks,
    work,
    workers,
)

ALL = (
    jobs.routes,
    tasks.routes,
    dead_letters.routes,
    queues.routes,
    types.routes,
    workers.routes,
    objects.routes,
    live.routes,
    orgs.routes,
    users.routes,
    roles.routes,
    keys.routes,
    audit.routes,
    dags.routes,
    datasets.routes,
    webhooks.routes,
    health.routes,
    metrics.routes,
    work.routes,
    supervision.routes,
)

"""One module per resource; `ALL` is everything the API serves."""

from __future__ import annotations

from aaiclick.server.routes import (
    audit,
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
    workers.routes,
    objects.routes,
    live.routes,
    orgs.routes,
    users.routes,
    roles.routes,
    keys.routes,
    audit.routes,
    webhooks.routes,
    health.routes,
    metrics.routes,
    work.routes,
    supervision.routes,
)

"""One module per subject; `ALL` is every page there is."""

from __future__ import annotations

from aaiclick.server.ui.pages import (
    admin,
    dags,
    datasets,
    dead_letters,
    flows,
    job,
    jobs,
    live,
    objects,
    overview,
    queues,
    schedules,
    search,
    sign_in,
    task,
    workers,
)

ALL = (
    overview.pages,
    jobs.pages,
    job.pages,
    task.pages,
    queues.pages,
    dead_letters.pages,
    workers.pages,
    dags.pages,
    flows.pages,
    datasets.pages,
    schedules.pages,
    objects.pages,
    admin.pages,
    search.pages,
    live.pages,
    sign_in.pages,
)

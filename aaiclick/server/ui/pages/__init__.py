"""One module per subject; `ALL` is every page there is."""

from __future__ import annotations

from aaiclick.server.ui.pages import (
    admin,
    dead_letters,
    job,
    jobs,
    live,
    objects,
    overview,
    queues,
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
    objects.pages,
    admin.pages,
    search.pages,
    live.pages,
    sign_in.pages,
)

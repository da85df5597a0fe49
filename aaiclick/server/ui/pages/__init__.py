"""Page handlers, one module per subject.

- `sign_in`: sign-in and sign-out, and the theme setting
- `overview`: current metrics, charts, running and failed jobs
- `search`: search by id or name
- `jobs`: job list, bulk cancel and retry
- `job`: a job: graph, timeline, tasks, log, events and actions
- `task`: a task: error, log, attempts, arguments and result
- `queues`: depth, throughput, limits, pause and resume of queues
- `dead_letters`: dead letters grouped by error, and failed events
- `incidents`: open incidents, with acknowledge, snooze and close
- `workers`: workers and their tasks in progress
- `functions`: job functions and the form that runs one
- `approvals`: what waits for people, and one-time links
- `schedules`: schedules and sources with their next and last runs
- `dags`: DAG list, graph, versions, runs and rollback
- `dag_actions`: fire a source, pause, resume and backfill
- `datasets`: dataset list, preview, versions and lineage
- `objects`: Object list, columns and rows
- `admin`: API keys, secrets, users, organisations and the audit log
- `change_events`: server-sent events with the ids of changed jobs

Next: aaiclick.operations for changes, aaiclick.store.ui for queries, aaiclick.server.ui.templating for the response.
"""

from __future__ import annotations

from aaiclick.server.ui.pages import (
    admin,
    approvals,
    change_events,
    dag_actions,
    dags,
    datasets,
    dead_letters,
    functions,
    incidents,
    job,
    jobs,
    objects,
    overview,
    queues,
    schedules,
    search,
    sign_in,
    task,
    workers,
)

ALL_PAGES = (
    overview.pages,
    jobs.pages,
    job.pages,
    task.pages,
    queues.pages,
    dead_letters.pages,
    incidents.pages,
    workers.pages,
    dags.pages,
    dag_actions.pages,
    datasets.pages,
    schedules.pages,
    functions.pages,
    approvals.pages,
    objects.pages,
    admin.pages,
    search.pages,
    change_events.pages,
    sign_in.pages,
)

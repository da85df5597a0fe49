"""Jobs: tasks, groups and dependencies, durable in PostgreSQL, run by workers.

from aaiclick.orchestration import OrchContext, create_job, create_task

extract, load = create_task("myapp.extract"), create_task("myapp.load")
extract >> load
job = await create_job("nightly", load)

Submit:

- `decorators`: `@task` and `@job`: functions as steps and workflows
- `decorator_checks`: functions and options that decorators refuse
- `task_placeholder`: uses of a task that need its value
- `parameters`: JSON Schema of a job's parameters, and validation of arguments
- `parameter_schema_text`: JSON Schemas of parameters as text
- `json_schema_validation`: validation of JSON values by a JSON Schema
- `job_labels`: tags and owner of a job, and the call that submitted it
- `jobs_by_function_name`: jobs that are started by the name of their function
- `function_registry`: registration of `@job` functions by workers
- `handler_registry`: registry of handlers by task type
- `failure_paths`: branches, failure handlers and final tasks
- `failure_argument`: the final failure of a task, as an argument of other tasks
- `compensation`: undoes the completed steps of a failed job
- `waits`: tasks that wait for a time, an event or a job; sensors; events
- `approvals`: tasks that wait for a person's decision
- `graph`: jobs, tasks and groups as Python objects, with their dependencies
- `retry_policy`: whether and when a failed attempt is retried
- `api`: functions to create and query tasks, jobs and workers
- `queue_items`: functions that put items into queues
- `context`: OrchContext: connection pool to PostgreSQL, and operations on jobs
- `connection_pool`: pools of connections to PostgreSQL, for contexts and for running tasks
- `argument_serialisation`: serialises arguments of tasks to JSON
- `select_result_item`: items of a result that is a tuple
- `typed_arguments`: arguments of types that JSON does not have
- `argument_tables`: references to the tables of Objects that are passed to tasks
- `pending_job`: the call of a @job, which is submitted when it is awaited
- `job_handle`: waits for a job, reads its result and logs
- `sync`: jobs without `await`, for notebooks and scripts
- `result_data_tests`: data tests of the rows that a task returns
- `submit_plan`: converts tasks and groups to the rows of a submit
- `models`: jobs, tasks, groups, workers and their states, for queries

Next: aaiclick.store.engine, which stores the tasks.

Claim, execute and complete:

- `worker`: supervisor and worker processes that claim and execute tasks
- `gateway`: interface between a worker and the queue, in PostgreSQL or over HTTP
- `runtimes`: external runtimes: SQS and Lambda
- `tenant_databases`: ClickHouse database and user of each organisation
- `http_worker_clickhouse_users`: ClickHouse users of HTTP workers
- `task_context`: the attempt that the current code belongs to
- `secrets`: access to secrets from the code of tasks
- `secret_redaction`: redaction of secrets in logs and errors
- `emit_event`: events of datasets, emitted by a running source
- `pg_lifecycle`: reference counting of tables in PostgreSQL
- `literal_results`: small results, which are kept in PostgreSQL with their tasks

Around tasks:

- `loops`: background loops: leases, schedules, events, retention, cleanup
- `notifications`: messages about incidents, and their delivery to channels
- `schedule_spec`: times and policies of a schedule, and the parameter with the nominal time
- `schedules`: creates schedules at run time, and those that modules declare
- `scheduled_runs`: starts a run of a schedule
- `background_coroutines`: background coroutines that restart on unexpected errors
- `result_cache`: options and keys of cached results
- `process_code_version`: version of the code of this process
- `health`: `health_check()`: PostgreSQL, ClickHouse, workers and the queue
- `table_audit`: compares tables in ClickHouse with references in PostgreSQL
- `json_logging`: logs as one JSON object per line
- `tracing`: OpenTelemetry traces, one per job
- `debugging`: breakpoints in tasks, and attempts that are repeated in the foreground
- `testing`: `run_job_test`: runs a job to its end in this process
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aaiclick.literal_result_registry import register_literal_store
from aaiclick.orchestration.api import (
    add_task_to_job,
    cancel_job,
    create_job,
    create_task,
    deregister_worker,
    get_job,
    get_task,
    list_jobs,
    list_workers,
    register_worker,
    retry_failed_tasks,
    set_retry_policy,
    worker_heartbeat,
)
from aaiclick.orchestration.approvals import Decision, approval
from aaiclick.orchestration.context import Context, OrchContext, get_current_context, get_orch_context_session
from aaiclick.orchestration.decorators import job, task
from aaiclick.orchestration.emit_event import emit_event
from aaiclick.orchestration.failure_argument import TaskFailure
from aaiclick.orchestration.failure_paths import Branch
from aaiclick.orchestration.graph import Group, Job, Task
from aaiclick.orchestration.handler_registry import handler
from aaiclick.orchestration.literal_results import ContextLiterals
from aaiclick.orchestration.models import JobStatus, TaskStatus, Worker, WorkerStatus
from aaiclick.orchestration.queue_items import enqueue, enqueue_many
from aaiclick.orchestration.retry_policy import PermanentError, RetryPolicy
from aaiclick.orchestration.schedule_spec import NominalDate, NominalTime
from aaiclick.orchestration.schedules import schedule, schedule_item, unschedule
from aaiclick.orchestration.secrets import get_secret
from aaiclick.orchestration.testing import run_job_test
from aaiclick.orchestration.waits import send_event, sensor, sleep, until, wait_for_event, wait_for_job

if TYPE_CHECKING:
    from aaiclick.orchestration.health import Health, health_check
    from aaiclick.store.models import Dependency

register_literal_store(ContextLiterals())

__all__ = [
    "Branch",
    "Context",
    "Decision",
    "Dependency",
    "Group",
    "Health",
    "Job",
    "JobStatus",
    "NominalDate",
    "NominalTime",
    "OrchContext",
    "PermanentError",
    "RetryPolicy",
    "Task",
    "TaskFailure",
    "TaskStatus",
    "Worker",
    "WorkerStatus",
    "add_task_to_job",
    "approval",
    "cancel_job",
    "create_job",
    "create_task",
    "deregister_worker",
    "emit_event",
    "enqueue",
    "enqueue_many",
    "get_current_context",
    "get_job",
    "get_orch_context_session",
    "get_secret",
    "get_task",
    "handler",
    "health_check",
    "job",
    "list_jobs",
    "list_workers",
    "register_worker",
    "retry_failed_tasks",
    "run_job_test",
    "schedule",
    "schedule_item",
    "send_event",
    "sensor",
    "set_retry_policy",
    "sleep",
    "task",
    "unschedule",
    "until",
    "wait_for_event",
    "wait_for_job",
    "worker_heartbeat",
]


_LAZY = {
    "Dependency": "aaiclick.store.models",  # imports SQLAlchemy
    "Health": "aaiclick.orchestration.health",  # imports the ClickHouse client
    "health_check": "aaiclick.orchestration.health",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)

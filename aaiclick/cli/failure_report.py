"""Report of a failed job: its failed tasks with traceback, last output and the next command."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, cast

from aaiclick.api.jobs import Job
from aaiclick.api.tasks import Task
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import print_message
from aaiclick.errors import AaiclickError
from aaiclick.store.catalog.dataset_events import ENTRYPOINT as DEFINITION_ENTRYPOINT

if TYPE_CHECKING:
    from aaiclick.client.endpoints import SyncEndpoints

MAX_TASKS = 3
LOG_BYTES = 64_000
LOG_LINES = 10
MAX_ARGUMENT = 100


def report_failure(job: Job) -> None:
    """Print the failed tasks of a job that has ended without success; nothing for other jobs."""
    if job.status != "FAILED":
        return
    with open_operations() as operations:
        failed = list(islice(_iter_failed(operations, job), MAX_TASKS))
        for number, task in enumerate(failed):
            is_repeated = any((task.type, task.error) == (other.type, other.error) for other in failed[:number])
            print_message(_describe_task(operations, task, is_repeated))
    if job.failed_tasks > len(failed):
        print_message(f"\n{job.failed_tasks - len(failed)} more tasks failed: aaiclick tasks ls {job.id}")
    if failed:
        print_message(f"\nThe whole log:             aaiclick logs {failed[0].id}")
        if not _is_definition(failed[0]):
            print_message(f"Repeat it in a debugger:   aaiclick tasks debug {failed[0].id} --pdb")
        print_message(f"Retry after a correction:  aaiclick jobs retry {job.id}")


def _iter_failed(operations: SyncEndpoints, job: Job) -> Iterator[Task]:
    for status in ("FAILED", "DEAD_LETTER"):
        yield from operations.list_tasks(job.id, status=status, limit=MAX_TASKS)


def _describe_task(operations: SyncEndpoints, task: Task, is_repeated: bool) -> str:
    attempts = f"attempt {task.attempt}"
    if task.status == "DEAD_LETTER" and task.attempt <= task.max_attempts:  # interrupted attempts do not count
        attempts += f" of {task.max_attempts}"
    arguments = "" if _is_definition(task) else f"({format_arguments(operations.get_task(task.id).kwargs)})"
    call = f"{task.type}{arguments}"
    description = f"\n{call} (task {task.id}) failed in {attempts}"
    if is_repeated:
        return f"{description} with the same error."
    description += f":\n\n{(task.error or '').rstrip()}"
    lines = _last_lines(operations, task)
    if not lines:
        return description
    return f"{description}\n\nIts last output:\n\n" + "\n".join(f"  {line}" for line in lines)


def _is_definition(task: Task) -> bool:
    """Whether a task is a step of a DAG: its arguments are ids of the catalog, and it is not repeated alone."""
    return task.entrypoint == DEFINITION_ENTRYPOINT


def format_arguments(kwargs: object) -> str:
    """Format the arguments of a task as in a call; `…` stands for Objects and results of other tasks."""
    arguments = cast("dict[str, object]", kwargs) if isinstance(kwargs, dict) else {}
    pairs = (f"{name}={_format_value(value)}" for name, value in arguments.items())
    return ", ".join(pair if len(pair) <= MAX_ARGUMENT else f"{pair[: MAX_ARGUMENT - 1]}…" for pair in pairs)


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_format_value(item) for item in cast('list[object]', value))}]"
    if not isinstance(value, dict):
        return repr(value)
    fields = cast("dict[str, object]", value)
    if "object_type" in fields:
        return "…"
    return f"{{{', '.join(f'{name!r}: {_format_value(item)}' for name, item in fields.items())}}}"


def _last_lines(operations: SyncEndpoints, task: Task) -> list[str]:
    """Last lines that the last attempt printed, without the traceback at the end of its log."""
    try:
        text = operations.read_task_log(task.id, offset=-LOG_BYTES, limit=LOG_BYTES).text
    except AaiclickError:  # not readable for this user, or on another machine
        return []
    from aaiclick.orchestration.worker.logs import ATTEMPT_HEADING  # slow import, only needed for a failure

    headings = list(ATTEMPT_HEADING.finditer(text))
    printed = text[headings[-1].end() :] if headings else text
    return printed.rstrip().removesuffix((task.error or "").rstrip()).splitlines()[-LOG_LINES:]

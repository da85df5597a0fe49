"""PendingJob: the call of a @job, which is submitted when it is awaited."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from aaiclick.data.pending_result import PendingResult
from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Job

_imported_module: ContextVar[str | None] = ContextVar("aaiclick_imported_module", default=None)


@contextmanager
def refuse_submissions_of_import(module_name: str) -> Generator[None]:
    """Refuse jobs that a module submits while a command imports it: every worker would submit them again."""
    token = _imported_module.set(module_name)
    try:
        yield
    finally:
        _imported_module.reset(token)


def check_no_import(job_name: str) -> None:
    """Raise SubmitError while a command imports the module that submits the job."""
    if (module_name := _imported_module.get()) is not None:
        raise SubmitError(
            f"The module {module_name} submits the job {job_name} while it is imported.",
            remedy='Put the call under: if __name__ == "__main__":',
        )


class PendingJob(PendingResult[Job]):
    """Call of a @job that is not submitted yet."""

    dropped = "{call} was not submitted: the call of a @job has to be awaited."
    remedy = "Write (await {call}); without async, asyncio.run({call}) or aaiclick.orchestration.sync.submit({call})."

"""Limited jobs that tests submit."""

from __future__ import annotations

from aaiclick.orchestration import job, task


@task
def work(number: int) -> int:
    return number


@job(concurrency=1)
def patient(number: int) -> None:
    work(number)


@job(deadline="2h")
def punctual(number: int) -> None:
    work(number)


@job(concurrency=2, when_busy="keep_newest")
def newest(number: int) -> None:
    work(number)

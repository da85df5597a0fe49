"""Changes by the code of a repeated task are refused, before a database is needed."""

import pytest

from aaiclick.errors import ConflictError
from aaiclick.orchestration import deregister_worker, job, schedule, schedule_item, set_retry_policy, task, unschedule
from aaiclick.orchestration.task_context import enter_repetition, leave_repetition


@task
def load() -> int:
    return 1


@job
def nightly() -> None:
    load()


CHANGES = {
    "save the schedule 'nightly'": lambda: schedule(nightly, cron="0 3 * * *", name="nightly"),
    "save the schedule 'items'": lambda: schedule_item("item", name="items", every="1h"),
    "delete the schedule 'nightly'": lambda: unschedule("nightly"),
    "set the retry policy of 'item'": lambda: set_retry_policy("item", None),
    "stop worker 1": lambda: deregister_worker(1),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_repeated_task_cannot_make_changes(change):
    token = enter_repetition()
    try:
        with pytest.raises(ConflictError, match=f"cannot {change}"):
            await CHANGES[change]()
    finally:
        leave_repetition(token)

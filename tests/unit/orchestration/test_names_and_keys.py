"""Names, keys and times that cannot be stored are refused before anything is sent to PostgreSQL."""

from __future__ import annotations

from datetime import date

import pytest

from aaiclick.errors import AaiclickError
from aaiclick.orchestration import (
    Group,
    approval,
    create_job,
    create_task,
    enqueue,
    enqueue_many,
    job,
    schedule,
    schedule_item,
    send_event,
    sensor,
    set_retry_policy,
    sleep,
    task,
    until,
    wait_for_event,
)
from aaiclick.orchestration.failure_paths import make_handler
from aaiclick.store.task_options import TaskOptions, parse_rate


@task
def work() -> None: ...


KEYS = {
    "type of an item": lambda key: enqueue(key, {}),
    "idempotency key of an item": lambda key: enqueue("mail", {}, idempotency_key=key),
    "idempotency keys": lambda key: enqueue_many("mail", [{}], idempotency_keys=[key]),
    "queue": lambda key: enqueue("mail", {}, queue=key),
    "concurrency key": lambda key: enqueue("mail", {}, concurrency_key=key),
    "rate key": lambda key: enqueue("mail", {}, rate="1/s", rate_key=key),
    "debounce key": lambda key: enqueue("mail", {}, debounce="1s", debounce_key=key or "\0"),
    "event": lambda key: send_event(key),
    "key of an event": lambda key: send_event("paid", key=key or "\0"),
    "awaited event": lambda key: wait_for_event(key),
    "key of an awaited event": lambda key: wait_for_event("paid", key=key or "\0"),
    "title": lambda key: approval(key),
    "role": lambda key: approval("Pay?", to=key),
    "name of a schedule": lambda key: schedule_item("mail", name=key, every="1d"),
    "type of a schedule": lambda key: schedule_item(key, name="daily", every="1d"),
    "name of a job": lambda key: create_job(key, work.task()),
    "idempotency key of a job": lambda key: create_job("job", work.task(), idempotency_key=key),
    "import path": lambda key: create_job("job", Group("group", [create_task(key)])),
    "retry policy": lambda key: set_retry_policy(key, None),
}


@pytest.mark.parametrize("key", ["", "k" * 1001, "字" * 334, "a\0b", "\ud800", 5], ids=ascii)
@pytest.mark.parametrize("call", KEYS.values(), ids=KEYS)
async def test_name_or_key_that_cannot_be_stored_is_refused(call, key) -> None:
    with pytest.raises(AaiclickError):
        await call(key)


TIMES = {
    "sleep of text": lambda: sleep("5"),  # pyright: ignore[reportArgumentType]
    "sleep of nan": lambda: sleep(float("nan")),
    "negative timeout": lambda: wait_for_event("paid", timeout_seconds=-1),
    "until a date": lambda: until(date(2026, 1, 1)),  # pyright: ignore[reportArgumentType]
    "polls": lambda: sensor(poll_seconds=None),  # pyright: ignore[reportArgumentType]
    "interval": lambda: schedule_item("mail", name="daily", every=5),  # pyright: ignore[reportArgumentType]
    "cron": lambda: schedule_item("mail", name="daily", cron=5),  # pyright: ignore[reportArgumentType]
    "zone": lambda: schedule_item("mail", name="daily", every="1d", timezone=5),  # pyright: ignore[reportArgumentType]
    "missed runs": lambda: schedule_item("mail", name="daily", every="1d", max_missed="7"),  # pyright: ignore[reportArgumentType]
    "schedule of a task": lambda: schedule(work, every="1d"),  # pyright: ignore[reportArgumentType]
    "payload": lambda: send_event("paid", ["euros"]),  # pyright: ignore[reportArgumentType]
    "key of a payload": lambda: send_event("paid", {1: 2}),  # pyright: ignore[reportArgumentType]
    "default": lambda: wait_for_event("paid", default="none"),  # pyright: ignore[reportArgumentType]
    "deadline": lambda: job(deadline=5)(work.function),  # pyright: ignore[reportArgumentType]
    "tags": lambda: job(tags=5)(work.function),  # pyright: ignore[reportArgumentType]
    "pinned version": lambda: job(pin_version=5)(work.function),  # pyright: ignore[reportArgumentType]
    "time limit": lambda: job(timeout_seconds="5")(work.function),  # pyright: ignore[reportArgumentType]
    "handler": lambda: make_handler(5, "ended"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("call", TIMES.values(), ids=TIMES)
async def test_value_of_a_wrong_type_is_refused(call) -> None:
    with pytest.raises(AaiclickError):
        await call()


def test_longest_keys_are_accepted() -> None:
    TaskOptions(rate="1/1", rate_key="k" * 1000, concurrency_key="字" * 333).check("The task")


def test_period_of_a_rate_keeps_its_digits() -> None:
    assert parse_rate("5/12345.649s") == "5/12345.649"

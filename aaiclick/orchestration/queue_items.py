"""Functions that put items into queues."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack, cast

from aaiclick.cron import parse_interval
from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_serialisation import serialise_arguments
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY, share_argument_tables
from aaiclick.orchestration.context import current_or_new_context
from aaiclick.orchestration.task_context import refuse_repeated
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import Debounce, enqueue_debounced, enqueue_tasks, enqueue_with_tables
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.name_and_key_limits import check_key
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskKeywords, TaskOptions

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from aaiclick.store.postgres_connections import Connection

KEY_CHARACTERS = 200


async def enqueue(
    type: str,  # noqa: A002  (the column's name)
    payload: Mapping[str, object] | None = None,
    *,
    idempotency_key: str | None = None,
    debounce: str | None = None,
    debounce_key: str = "",
    debounce_merge: bool = False,
    connection: Connection | AsyncConnection | AsyncSession | None = None,
    **options: Unpack[TaskKeywords],
) -> int:
    """Put one item into a queue; returns its id, or that of the item that has its idempotency key.

    With `connection` (asyncpg's, or a SQLAlchemy connection or session) it is part of the caller's transaction. With
    `debounce` (an interval such as "30s") it waits that long; a later item with the same key replaces its payload, or
    is merged into it, and starts the interval again.

    ```python
    await enqueue("email:send", {"to": "ada@example.org"}, idempotency_key="order 42")
    ```
    """
    payloads = [payload or {}]
    if debounce is not None:
        delay = parse_debounce(type, debounce, debounce_key, idempotency_key, is_merged=debounce_merge)
        [item] = make_items(type, payloads, [None], DEFAULT_OPTIONS.change(options))
        return await _enqueue_debounced(item, delay, connection)
    items = make_items(type, payloads, [idempotency_key], DEFAULT_OPTIONS.change(options))
    return (await _enqueue_items(items, payloads, connection))[0]


async def enqueue_many(
    type: str,  # noqa: A002  (the column's name)
    payloads: Sequence[Mapping[str, object]],
    *,
    idempotency_keys: Sequence[str | None] | None = None,
    connection: Connection | AsyncConnection | AsyncSession | None = None,
    **options: Unpack[TaskKeywords],
) -> list[int]:
    """Put many items of a type into a queue at once; returns their ids in order.

    ```python
    await enqueue_many("email:send", [{"to": "ada@example.org"}, {"to": "bob@example.org"}])
    ```
    """
    keys = idempotency_keys or [None] * len(payloads)
    items = make_items(type, payloads, keys, DEFAULT_OPTIONS.change(options))
    return await _enqueue_items(items, payloads, connection)


def parse_debounce(
    item_type: str, interval: str, key: str, idempotency_key: str | None, *, is_merged: bool
) -> Debounce:
    """The debounce of an item; raises SubmitError or ScheduleError."""
    if idempotency_key is not None:
        raise SubmitError(f"An item of type {item_type!r} has debounce and idempotency_key.", remedy="Use one of them.")
    check_key("The debounce_key", key, is_empty_allowed=True)
    if not key.isprintable() or len(key) > KEY_CHARACTERS:
        raise SubmitError(
            f"The debounce_key {key[:50]!a} cannot be stored.",
            remedy=f"It has at most {KEY_CHARACTERS} printable characters.",
        )
    return Debounce(parse_interval(interval).total_seconds(), key, is_merged)


async def _enqueue_debounced(
    item: NewTask, debounce: Debounce, connection: Connection | AsyncConnection | AsyncSession | None
) -> int:
    if TABLE_ID_KEY in item.kwargs:
        raise SubmitError(
            f"An item of type {item.type!r} has debounce and an Object in its payload.",
            remedy="Pass the name of a named Object.",
        )
    if connection is None:
        async with current_or_new_context() as context, context.connection(keeps_session=True) as own_connection:
            return await enqueue_debounced(own_connection, item, debounce)
    return await enqueue_debounced(await _driver_connection(connection), item, debounce)


def make_items(
    type: str,  # noqa: A002  (the column's name)
    payloads: Sequence[Mapping[str, object]],
    keys: Sequence[str | None],
    options: TaskOptions,
) -> list[NewTask]:
    """Make queue items of one type from payloads and idempotency keys."""
    check_key("The type of an item", type)
    what = f"item of type {type!r}"
    refuse_repeated(f"enqueue an {what}")
    options.check(f"An {what}")
    items: list[NewTask] = []
    for task_id, payload, key in zip(get_snowflake_ids(len(payloads)), payloads, keys, strict=True):
        if key is not None:
            check_key(f"The idempotency key of an {what}", key)
        kwargs, required_tasks = serialise_arguments(payload, what)
        if required_tasks:
            raise SubmitError(
                f"An {what} needs the result of {required_tasks[0]!r}.", remedy="Results pass within a job only."
            )
        items.append(NewTask(task_id, type, kwargs=kwargs, idempotency_key=key, options=options))
    return items


async def _enqueue_items(
    items: Sequence[NewTask],
    payloads: Sequence[Mapping[str, object]],
    connection: Connection | AsyncConnection | AsyncSession | None,
) -> list[int]:
    if connection is None:
        async with current_or_new_context() as context, context.connection(keeps_session=True) as own_connection:
            return await _insert_items(items, payloads, own_connection)
    return await _insert_items(items, payloads, await _driver_connection(connection))


async def _driver_connection(connection: Connection | AsyncConnection | AsyncSession) -> Connection:
    """asyncpg's own connection, in the transaction of the caller's."""
    if "sqlalchemy.ext.asyncio" not in sys.modules:  # not loaded, so it cannot be one of SQLAlchemy's
        return cast("Connection", connection)
    from sqlalchemy import select
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    if isinstance(connection, AsyncSession):
        connection = await connection.connection()
    if not isinstance(connection, AsyncConnection):
        return connection
    await connection.execute(select(1))  # SQLAlchemy begins its transaction with its first statement
    raw = await connection.get_raw_connection()
    return cast("Connection", raw.driver_connection)


async def _insert_items(
    items: Sequence[NewTask], payloads: Sequence[Mapping[str, object]], connection: Connection
) -> list[int]:
    arguments = [
        (item.id, payload) for item, payload in zip(items, payloads, strict=True) if TABLE_ID_KEY in item.kwargs
    ]
    if not arguments:
        return await enqueue_tasks(connection, items)
    async with share_argument_tables(arguments) as shared:
        return await enqueue_with_tables(connection, items, shared.tables, shared.adopted)

"""find_outage, and the pauses between attempts to publish a result."""

from __future__ import annotations

import itertools
import pickle
import time

import pytest

from aaiclick.data.errors import ObjectNotFoundError, QueryError
from aaiclick.errors import AaiclickError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.worker.outages import PUBLISH_SECONDS, find_outage, publish_pauses

OWN = "db:8123"
OUTAGE = UnreachableError("ClickHouse does not answer.").at(OWN)


def caused_by(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def circular() -> BaseException:
    one, two = ValueError(), ValueError()
    one.__cause__, two.__cause__ = two, one
    return one


REPORTED = {
    "itself": OUTAGE,
    "refused credential": UnauthorisedError("no").at(OWN),
    "missing database": ObjectNotFoundError("no").at(OWN),
    "overload": QueryError("too many").at(OWN),
    "cause": caused_by(RuntimeError("no rows"), OUTAGE),
    "group": ExceptionGroup("all", [OUTAGE, caused_by(KeyError(), UnreachableError("x").at(OWN))]),
    "group of groups": ExceptionGroup("all", [ExceptionGroup("inner", [OUTAGE])]),
}
NOT_REPORTED = {
    "another server": UnreachableError("no").at("elsewhere:8123"),
    "no server": UnreachableError("no"),
    "the network": ConnectionRefusedError(),
    "time": TimeoutError(),
    "a query": QueryError("Unknown column"),
    "one of a group": ExceptionGroup("some", [OUTAGE, ValueError("own")]),
    "circular": circular(),
}


@pytest.mark.parametrize("name", REPORTED)
def test_outage_of_own_servers_is_found(name: str) -> None:
    assert isinstance(find_outage(REPORTED[name], [OWN]), AaiclickError)


@pytest.mark.parametrize("name", NOT_REPORTED)
def test_any_other_error_is_no_outage(name: str) -> None:
    assert find_outage(NOT_REPORTED[name], [OWN]) is None


def test_an_exception_that_was_handled_is_no_outage() -> None:
    error = KeyError("own")
    error.__context__ = OUTAGE
    assert find_outage(error, [OWN]) is None


def test_an_error_keeps_its_endpoint_through_pickle() -> None:
    assert pickle.loads(pickle.dumps(OUTAGE)).address == OWN


def test_publishing_is_tried_for_a_minute_or_as_long_as_the_task_ran() -> None:
    now = time.monotonic()
    assert list(publish_pauses(now, now + 1)) == []
    short = publish_pauses(now, now + 10 * PUBLISH_SECONDS)
    assert list(itertools.islice(short, 6)) == [0.2, 0.5, 1.0, 2.0, 5.0, 5.0]
    pauses = publish_pauses(now - 3600, now + 3600)
    assert len(list(itertools.islice(pauses, 100))) == 100

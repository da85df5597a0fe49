"""Translate errors of clickhouse-connect and of the network into our error tree.

An error carries the server's `endpoint` if the server, not the query, is at fault: it is unreachable, overloaded, or
refuses this installation. Workers do not charge attempts for such errors.
"""

# clickhouse-connect ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re

from aiohttp import ClientPayloadError
from clickhouse_connect.driver.exceptions import OperationalError

from aaiclick.data.errors import OF_THE_TEXT, ObjectNotFoundError, QueryError
from aaiclick.errors import AaiclickError, UnauthorisedError, UnreachableError
from aaiclick.targets import ClickHouseTarget

_CODE = re.compile(r"[Cc]ode: (\d+)")
_URL = re.compile(r"\(for url [^)]*\)|https?://\S+")  # the path of a URL may be a secret
_DETAIL = re.compile(r"DB::Exception: (.*?)(?:\. \([A-Z_0-9]+\)|\(version|$)", re.DOTALL)
_GATEWAY = re.compile(r"HTTP status 50[234]\b")
"""A load balancer answers for a ClickHouse that it cannot reach."""

UNKNOWN_TABLE, UNKNOWN_DATABASE = 60, 81
AUTHENTICATION = (192, 193, 194, 516)
SHARD_UNREACHABLE = (32, 209, 210, 279)
"""One node cannot reach another, or lost it while it was answering."""

OVERLOAD = frozenset({
    201,  # QUOTA_EXCEEDED
    202,  # TOO_MANY_SIMULTANEOUS_QUERIES
    203,  # NO_FREE_CONNECTION
    225,  # NO_ZOOKEEPER
    236,  # ABORTED: the server is shutting down
    242,  # TABLE_IS_READ_ONLY: the server lost its Keeper
    243,  # NOT_ENOUGH_SPACE
    252,  # TOO_MANY_PARTS
    394,  # QUERY_WAS_CANCELLED: at a shutdown, or by an administrator
    439,  # CANNOT_SCHEDULE_TASK: no thread is free
    745,  # SERVER_OVERLOADED
    999,  # KEEPER_EXCEPTION
})  # fmt: skip
"""The server cannot run any query now, or not this one beside the others: the query is not at fault."""

MEMORY_LIMIT_EXCEEDED = 241
_SHARED_MEMORY = re.compile(r"\((?:total|for user)\)|\buser memory limit", re.IGNORECASE)
"""The limits of the server and of a user are shared with other queries; that of one query is its own fault."""


class BrokenOffError(UnreachableError):
    """An answer that had begun broke off."""


def translate(error: Exception, target: ClickHouseTarget) -> AaiclickError:
    """The error of our tree that stands for an error of the driver or the network."""
    if isinstance(error, AaiclickError):
        return error
    text = _URL.sub("", str(error))
    match = _CODE.search(text)
    code = int(match.group(1)) if match else 0
    detail = _DETAIL.search(text)
    words = (detail.group(1) if detail else text).strip()
    if code or "REQUIRED_PASSWORD" in text:
        return _refusal(code, words, target, text)
    if _broke_off(error):
        broken = BrokenOffError(
            f"The answer of {target} broke off.", remedy="Look whether it still runs, and try again."
        )
        return broken.at(target.endpoint)
    if _is_network_error(error) or _GATEWAY.search(text):
        return UnreachableError(f"{target} does not answer: {words}.", remedy=_how_to_start(target)).at(target.endpoint)
    return QueryError(f"The query failed: {words}.")


def _refusal(code: int, words: str, target: ClickHouseTarget, text: str) -> AaiclickError:
    """ClickHouse answered with an error number."""
    if code in AUTHENTICATION or "REQUIRED_PASSWORD" in text:
        return UnauthorisedError(f"{target} refused the user or password.", remedy="Check AAICLICK_CLICKHOUSE_URL.").at(
            target.endpoint
        )
    if code == UNKNOWN_DATABASE:
        missing = ObjectNotFoundError(
            f"{target} does not exist.", remedy="Create it, or name another in AAICLICK_CLICKHOUSE_URL."
        )
        return missing.at(target.endpoint) if target.database in words else missing
    if code == UNKNOWN_TABLE:
        return ObjectNotFoundError(
            f"The table is gone or never was: {words}.", remedy="The Object was deleted; make it again."
        )
    if code in SHARD_UNREACHABLE and target.cluster:
        return UnreachableError(
            f"A node of the cluster {target.cluster!r} does not answer: {words.splitlines()[0]}.",
            remedy="Start it: every Object has rows on every node.",
        ).at(target.endpoint)
    lasting = " It lies in the query: trying again is no use." if code in OF_THE_TEXT else ""
    result = QueryError(f"ClickHouse refused the query: {words}.", remedy=f"Its error code is {code}.{lasting}")
    result.code = code
    return result.at(target.endpoint) if _is_overload(code, words) else result


def _is_overload(code: int, words: str) -> bool:
    return code in OVERLOAD or (code == MEMORY_LIMIT_EXCEEDED and bool(_SHARED_MEMORY.search(words)))


def _is_network_error(error: Exception) -> bool:
    return isinstance(error, OperationalError | OSError) or type(error).__module__.startswith("aiohttp")


def _how_to_start(target: ClickHouseTarget) -> str:
    embedded = bool(target.path)  # only that one is reached by a secret path
    return "Start it: aaiclick up" if embedded else "Start it, or correct AAICLICK_CLICKHOUSE_URL."


def _broke_off(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ClientPayloadError):
            return True
        error = error.__cause__ or error.__context__
    return False

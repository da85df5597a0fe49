"""Translation of clickhouse-connect and network errors into aaiclick's errors.

An error has the server's `address` if the server, not the query, is at fault: it is unreachable, overloaded, or
refuses this installation. Workers do not charge attempts for such errors.
"""

from __future__ import annotations

import re

from aiohttp import ClientPayloadError
from clickhouse_connect.driver.exceptions import OperationalError

from aaiclick.data.errors import PERMANENT_ERROR_CODES, ObjectNotFoundError, QueryError
from aaiclick.data.expressions.functions.aggregates import WIDE_OVERFLOW
from aaiclick.data.expressions.functions.arithmetic import DECIMAL_OVERFLOW
from aaiclick.data.expressions.functions.casts import CAST_FAILED
from aaiclick.data.expressions.functions.dates_and_times import OUT_OF_RANGE
from aaiclick.data.expressions.functions.durations import LOST_DIGITS
from aaiclick.data.expressions.functions.nested import VECTOR_LENGTHS
from aaiclick.data.expressions.functions.powers import POWER_OVERFLOW
from aaiclick.data.expressions.functions.windows import RANGE_TOO_FINE
from aaiclick.errors import AaiclickError, UnauthorisedError, UnreachableError
from aaiclick.server_addresses import ClickHouseEndpoint

_CODE = re.compile(r"[Cc]ode: (\d+)")
_URL = re.compile(r"\(for url [^)]*\)|https?://\S+")  # the path of a URL may be a secret
_DETAIL = re.compile(r"DB::Exception: (.*?)(?:\. \([A-Z_0-9]+\)|\(version|$)", re.DOTALL)
_GATEWAY = re.compile(r"HTTP status 50[234]\b")
"""Response of a load balancer that cannot reach ClickHouse."""

UNKNOWN_TABLE, UNKNOWN_DATABASE = 60, 81
AUTHENTICATION = (192, 193, 194, 516)
SHARD_UNREACHABLE = (32, 209, 210, 279)
"""One node cannot reach another, or lost the connection during the response."""

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
"""Codes for a server that cannot run any query now, or not this one in addition to others."""

CANNOT_CONVERT_TYPE, THROW_IF, DECIMAL_OVERFLOW_CODE = 70, 395, 407
_THROWN = {
    DECIMAL_OVERFLOW: ("A Decimal has too many digits for its type.", "Cast to Decimal(38, …) or to float."),
    WIDE_OVERFLOW: ("A sum does not fit its type of 256 bits.", "Cast to float first."),
    POWER_OVERFLOW: ("An integer power does not fit Int64, or its exponent is negative.", "Cast one side to float."),
    OUT_OF_RANGE: (
        "A date or datetime lies outside of 1900 to 2299.",
        "Filter such rows, or limit the amount that is added.",
    ),
    VECTOR_LENGTHS: ("Two vectors have different lengths.", "Filter such rows."),
    RANGE_TOO_FINE: (
        "The values of by= are more precise than a window of this width allows.",
        'Truncate them: by=col("t").dt.truncate("1ms") for more than 35 minutes, "1s" for more than 24 days.',
    ),
    LOST_DIGITS: (
        "A difference of datetimes has nanoseconds, and durations have microseconds.",
        "Cast the datetimes to DateTime64(6) first, with truncate=True.",
    ),
}
"""What happened and the remedy, by the message of `throwIf`."""

_FAILED_CAST = re.compile(CAST_FAILED + r": (.+?) to (.+?)(?:: while executing|: In scope|$)")
_UNSAFE_CONVERSION = re.compile(r"into type (U?Int\d+)|accurateCast.*'(?:Nullable\()?(U?Int\d+)\)?'", re.DOTALL)

_INVALID_PATTERN = re.compile(
    r"(?:cannot compile re2: .*?, error|not a valid re2 pattern): (.+?)(?:\. Look at|: while executing|$)", re.DOTALL
)
_DOTTED_NAMES = re.compile(
    r"Elements '(.+?)' and '(.+?)' of Nested data structure"
    r"|Columns '(\S+) .*' and '(\S+) .*' have streams .* with collision"
)

ILLEGAL_AGGREGATION = 184
_HIDDEN_COLUMN = "An alias hides the column of the same name: rename the alias, or write the column as TABLE.COLUMN"

MEMORY_LIMIT_EXCEEDED = 241
_SHARED_MEMORY = re.compile(r"\((?:total|for user)\)|\buser memory limit", re.IGNORECASE)
"""The limits of the server and of a user are shared with other queries; a limit per query is the query's fault."""


class IncompleteResponseError(UnreachableError):
    """The connection broke during a response."""


def translate_error(error: Exception, endpoint: ClickHouseEndpoint) -> AaiclickError:
    """Return the aaiclick error for an error of the driver or the network."""
    if isinstance(error, AaiclickError):
        return error
    text = _URL.sub("", str(error))
    match = _CODE.search(text)
    code = int(match.group(1)) if match else 0
    detail = _DETAIL.search(text)
    message = (detail.group(1) if detail else text).strip()
    if code or "REQUIRED_PASSWORD" in text:
        return _classify_error(code, message, endpoint, text)
    if _is_incomplete_response(error):
        broken = IncompleteResponseError(
            f"{endpoint} closed the connection during a response.", remedy="Check that it runs, and try again."
        )
        return broken.at(endpoint.address)
    if _is_network_error(error) or _GATEWAY.search(text):
        return UnreachableError(f"{endpoint} does not answer: {message}.", remedy=_how_to_start(endpoint)).at(
            endpoint.address
        )
    return QueryError(f"The query failed: {message}.")


def _classify_error(code: int, message: str, endpoint: ClickHouseEndpoint, text: str) -> AaiclickError:
    """Return the error for a ClickHouse error code."""
    if code in AUTHENTICATION or "REQUIRED_PASSWORD" in text:
        return UnauthorisedError(
            f"{endpoint} refused the user or password.", remedy="Check AAICLICK_CLICKHOUSE_URL."
        ).at(endpoint.address)
    if code == UNKNOWN_DATABASE:
        missing = ObjectNotFoundError(
            f"{endpoint} does not exist.", remedy="Create it, or name another in AAICLICK_CLICKHOUSE_URL."
        )
        return missing.at(endpoint.address) if endpoint.database in message else missing
    if code == UNKNOWN_TABLE:
        return ObjectNotFoundError(
            f"The table does not exist: {message}.", remedy="The Object was deleted; create it again."
        )
    if code in SHARD_UNREACHABLE and endpoint.cluster:
        return UnreachableError(
            f"A node of the cluster {endpoint.cluster!r} does not answer: {message.splitlines()[0]}.",
            remedy="Start it: every Object has rows on every node.",
        ).at(endpoint.address)
    value_error = _explain_value(code, message)
    if value_error is not None:
        value_error.code = code
        return value_error
    if code == ILLEGAL_AGGREGATION and "inside another aggregate" in message:
        message += f". {_HIDDEN_COLUMN}"
    permanence = " The query itself is at fault: a retry will fail too." if code in PERMANENT_ERROR_CODES else ""
    result = QueryError(f"ClickHouse refused the query: {message}.", remedy=f"Its error code is {code}.{permanence}")
    result.code = code
    return result.at(endpoint.address) if _is_overload(code, message) else result


def _explain_value(code: int, message: str) -> QueryError | None:
    """Return the error for a value that a type does not hold, without ClickHouse's text of the query."""
    if code == THROW_IF and (match := _FAILED_CAST.search(message)):
        return QueryError(
            f"A value cannot be cast from {match.group(1)} to {match.group(2)} without a change.",
            remedy="Use round() or cast(…, truncate=True) to drop digits, or try_cast(…) to get NULL.",
        )
    if code == CANNOT_CONVERT_TYPE and (match := _UNSAFE_CONVERSION.search(message)):
        return QueryError(
            f"A number does not fit {match.group(1) or match.group(2)}: it is too large, has a fraction, or is NaN.",
            remedy="Choose a wider type, use round() or cast(…, truncate=True) for fractions, or try_cast(…) for NULL.",
        )
    if match := _DOTTED_NAMES.search(message):
        first, second = (group for group in match.groups() if group is not None)
        return QueryError(
            f"Columns {first!r} and {second!r} share the part before the dot, which ClickHouse takes for "
            "one nested column.",
            remedy="Rename one of them.",
        )
    if "number of shift positions needs to be" in message:
        return QueryError("A number of bits to shift is negative.", remedy="Shift to the other side instead.")
    if match := _INVALID_PATTERN.search(message):
        return QueryError(
            f"The regular expression is not valid: {match.group(1)}.",
            remedy="Patterns are RE2's, without lookaround and backreferences.",
        )
    if code == DECIMAL_OVERFLOW_CODE:
        return _thrown_error(DECIMAL_OVERFLOW)
    if code == THROW_IF:  # other errors quote the query, which has all messages of throwIf
        return next((_thrown_error(thrown) for thrown in _THROWN if message.startswith(thrown)), None)
    return None


def _thrown_error(thrown: str) -> QueryError:
    what, remedy = _THROWN[thrown]
    return QueryError(what, remedy=remedy)


def _is_overload(code: int, message: str) -> bool:
    return code in OVERLOAD or (code == MEMORY_LIMIT_EXCEEDED and bool(_SHARED_MEMORY.search(message)))


def _is_network_error(error: Exception) -> bool:
    return isinstance(error, OperationalError | OSError) or type(error).__module__.startswith("aiohttp")


def _how_to_start(endpoint: ClickHouseEndpoint) -> str:
    embedded = bool(endpoint.path)  # only the embedded server has a secret path
    return "Start it: aaiclick up" if embedded else "Start it, or correct AAICLICK_CLICKHOUSE_URL."


def _is_incomplete_response(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ClientPayloadError):
            return True
        error = error.__cause__ or error.__context__
    return False

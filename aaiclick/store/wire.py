"""What a new connection knows about types, so that it need not ask.

asyncpg knows few array types and no enum. It asks PostgreSQL for each as it meets one, by a recursive query over the
catalog: 10 ms and more, several times for every connection, and in the middle of whatever the connection was at.
Arrays of PostgreSQL's own types have the same number everywhere, and our enums are found by one small query, so all
are told to the driver at once. What it does not know after that, or if it does not listen, it asks for as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

ARRAYS = {
    1000: ("bool", 16), 1005: ("int2", 21), 1007: ("int4", 23), 1016: ("int8", 20), 1022: ("float8", 701),
    1185: ("timestamptz", 1184), 2951: ("uuid", 2950), 3807: ("jsonb", 3802),
}  # fmt: skip
"""Number of the array type → name and number of what is in it."""


async def introduce(connection: Connection) -> int:
    """Tell the driver about arrays and enums; returns the id of the server process that answered."""
    enums = await connection.fetch(statement("enum_types"))
    pid: int = enums[0]["pid"] if enums else await connection.fetchval(statement("backend_pid"))
    try:
        register = connection._protocol.get_settings().register_data_types  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]
    except AttributeError:  # another asyncpg
        return pid
    register([_type(number, f"_{name}", of=(name, of)) for number, (name, of) in ARRAYS.items()])
    register([_type(row["oid"], row["name"], kind=b"e") for row in enums])
    register([_type(row["typarray"], f"_{row['name']}", of=(row["name"], row["oid"])) for row in enums])
    return pid


def _type(number: int, name: str, *, kind: bytes = b"b", of: tuple[str, int] = ("", 0)) -> dict[str, Any]:
    """A row as the driver's own query would have it."""
    nothing = dict.fromkeys(
        ("basetype", "basetype_name", "range_subtype", "range_subtype_name", "attrtypoids", "attrnames")
    )
    element = {"elemtype": of[1] or None, "elemtype_name": of[0] or None, "elemdelim": ","}
    return {"oid": number, "ns": "pg_catalog", "name": name, "kind": kind, "depth": 0, **element, **nothing}

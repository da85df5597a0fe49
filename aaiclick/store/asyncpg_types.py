"""Register array and enum types with asyncpg for each new connection.

asyncpg knows few array types and no enum, and looks each up by a recursive query over the system catalog: 10 ms and
more, several times per connection. OIDs of PostgreSQL's own array types are constant, and our enums are found by one
small query, so all are registered at once. Types that are not registered are looked up as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

ARRAY_TYPES = {
    1000: ("bool", 16), 1005: ("int2", 21), 1007: ("int4", 23), 1016: ("int8", 20), 1022: ("float8", 701),
    1185: ("timestamptz", 1184), 2951: ("uuid", 2950), 3807: ("jsonb", 3802),
}  # fmt: skip
"""OID of the array type → name and OID of its element type."""


async def register_types(connection: Connection) -> int:
    """Register arrays and enums with the driver; returns the pid of the server process."""
    enums = await connection.fetch(statement("list_enum_types"))
    pid: int = enums[0]["pid"] if enums else await connection.fetchval(statement("get_backend_pid"))
    try:
        register = connection._protocol.get_settings().register_data_types  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]
    except AttributeError:  # another asyncpg
        return pid
    register([_type_record(number, f"_{name}", of=(name, of)) for number, (name, of) in ARRAY_TYPES.items()])
    register([_type_record(row["oid"], row["name"], kind=b"e") for row in enums])
    register([_type_record(row["typarray"], f"_{row['name']}", of=(row["name"], row["oid"])) for row in enums])
    return pid


def _type_record(number: int, name: str, *, kind: bytes = b"b", of: tuple[str, int] = ("", 0)) -> dict[str, object]:
    """A row like that of the driver's own query."""
    null_fields = dict.fromkeys(
        ("basetype", "basetype_name", "range_subtype", "range_subtype_name", "attrtypoids", "attrnames")
    )
    element = {"elemtype": of[1] or None, "elemtype_name": of[0] or None, "elemdelim": ","}
    return {"oid": number, "ns": "pg_catalog", "name": name, "kind": kind, "depth": 0, **element, **null_fields}

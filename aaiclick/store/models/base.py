"""What every model shares: one metadata of our own, and short words for columns.

The metadata is not `SQLModel.metadata`: a user's own models live there, and `aaiclick migrate check` must not see them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, DateTime, Enum, ForeignKey, MetaData, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import registry
from sqlalchemy.sql.schema import SchemaItem
from sqlalchemy.types import TypeEngine
from sqlmodel import Field, SQLModel

# The names PostgreSQL itself would give, so that a constraint has one name however it was made.
_NAMES = {
    "pk": "%(table_name)s_pkey",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s",
}

metadata = MetaData(naming_convention=_NAMES)
_registry = registry(metadata=metadata)


class Row(SQLModel, registry=_registry):
    """Base of all tables."""

    __tablename__: ClassVar[Any]  # each names its own; SQLModel's own annotation admits no plain string


def busy(*, fillfactor: int = 100) -> dict[str, Any]:
    """Storage of a table whose rows change all the time: vacuumed early and unthrottled, with room for HOT updates."""
    options = {"autovacuum_vacuum_scale_factor": 0.01, "autovacuum_vacuum_cost_delay": 0}
    return {"postgresql_with": options if fillfactor == 100 else {"fillfactor": fillfactor, **options}}


def column(
    kind: TypeEngine[Any],
    *items: SchemaItem,
    default: Any = None,
    server: str | None = None,
    null: bool = False,
    primary_key: bool = False,
) -> Any:
    """One column; `default` is what Python starts with, `server` what PostgreSQL fills in (an SQL expression)."""
    server_default = None if server is None else text(server)
    options: dict[str, Any] = {"nullable": null, "server_default": server_default, "primary_key": primary_key}
    if primary_key:
        options["autoincrement"] = False
    initial: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return Field(sa_column=Column(kind, *items, **options), **initial)


def snowflake_key() -> Any:
    """A primary key made before the insert (`aaiclick.snowflake`), never by the database."""
    return column(BigInteger(), primary_key=True)


def uuid_key() -> Any:
    return column(Uuid(), server="gen_random_uuid()", primary_key=True)


def snowflake(
    target: str | None = None, *, null: bool = False, on_delete: str | None = None, primary_key: bool = False
) -> Any:
    return column(BigInteger(), *_reference(target, on_delete), null=null, primary_key=primary_key)


def uuid(
    target: str | None = None, *, null: bool = False, on_delete: str | None = None, primary_key: bool = False
) -> Any:
    return column(Uuid(), *_reference(target, on_delete), null=null, primary_key=primary_key)


def org(*, primary_key: bool = False) -> Any:
    return column(Uuid(), ForeignKey("orgs.id"), primary_key=primary_key)


def moment(*, null: bool = True) -> Any:
    """A time that an event sets."""
    return column(DateTime(timezone=True), null=null)


def now() -> Any:
    """A time that the database sets when the row is made."""
    return column(DateTime(timezone=True), server="now()")


def words(*, null: bool = False, default: str | None = None, primary_key: bool = False) -> Any:
    server = None if default is None else f"'{default}'"
    return column(Text(), null=null, default=default, server=server, primary_key=primary_key)


def many_words(*, null: bool = False) -> Any:
    return column(ARRAY(Text()), null=True) if null else column(ARRAY(Text()), default=list, server="'{}'")


def document(*, null: bool = False) -> Any:
    """JSON; Python's None is SQL's NULL, never the JSON word null."""
    kind = JSONB(none_as_null=True)
    return column(kind, null=True) if null else column(kind, default=dict, server="'{}'")


def enum(kind: type[StrEnum], name: str) -> Enum:
    """A native PostgreSQL enum holding the values (not the Python names) of `kind`."""
    return Enum(kind, name=name, metadata=metadata, values_callable=_values)


def _values(kind: type[StrEnum]) -> list[str]:
    return [member.value for member in kind]


def _reference(target: str | None, on_delete: str | None) -> tuple[ForeignKey, ...]:
    return () if target is None else (ForeignKey(target, ondelete=on_delete),)

"""Registry of the store of literals: the data layer reads small results through it, without the orchestration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class LiteralStore(Protocol):
    """Store of small results with the tasks that returned them."""

    async def load_literals(self, table_names: Sequence[str]) -> Mapping[str, str]:
        """Encoded values of the literals among these tables."""
        ...

    async def reserve_literal(self, table_name: str) -> bool:
        """Reserve the table of a literal for the caller, which creates it; False if it is a table by now."""
        ...

    async def replace_literal(self, table_name: str) -> None:
        """Make other readers of the literal use its table, which is complete."""
        ...

    async def abandon_literal(self, table_name: str) -> None:
        """Cancel a reservation: the table could not be created."""
        ...


_stores: list[LiteralStore] = []


def register_literal_store(store: LiteralStore) -> None:
    """Register the store of literals of this process."""
    _stores[:] = [store]


def find_literal_store() -> LiteralStore | None:
    """The store of literals; None in a process that uses the data layer alone."""
    return _stores[0] if _stores else None

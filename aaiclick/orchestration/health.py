"""`health_check()`: is everything there that jobs need?"""

from __future__ import annotations

from dataclasses import dataclass

from aaiclick.errors import AaiclickError
from aaiclick.orchestration.context import any_context
from aaiclick.store.health import Check, check_work


@dataclass(frozen=True, slots=True)
class Health:
    """What was asked, and whether all of it is well."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


async def health_check() -> Health:
    """Whether the database answers, workers are there, and no task is stuck; each is named. Never raises."""
    try:
        async with any_context() as context, context.connection() as connection:
            return Health(tuple(await check_work(connection)))
    except (AaiclickError, OSError) as error:
        return Health((Check("database", False, str(error)),))

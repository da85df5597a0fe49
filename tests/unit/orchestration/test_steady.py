"""Work that everybody relies on goes on after what nobody has thought of."""

from __future__ import annotations

import pytest

from aaiclick.errors import UnreachableError
from aaiclick.orchestration import steady


@pytest.mark.parametrize(("raised", "times"), [(KeyError("unthought of"), 3), (UnreachableError("given up"), 1)])
async def test_it_begins_anew_until_the_queue_is_given_up(monkeypatch, caplog, raised, times):
    monkeypatch.setattr(steady, "PAUSE_SECONDS", 0)
    begun: list[int] = []

    async def work() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise raised

    await steady.steadily(work, until=(UnreachableError,))
    assert len(begun) == times
    assert ("this should not have happened" in caplog.text) == (times > 1)

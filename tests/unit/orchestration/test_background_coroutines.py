"""run_forever: restarts after unexpected errors."""

from __future__ import annotations

import pytest

from aaiclick.errors import UnreachableError
from aaiclick.orchestration import background_coroutines


@pytest.mark.parametrize(("error", "times"), [(KeyError("unexpected"), 3), (UnreachableError("given up"), 1)])
async def test_run_forever_restarts_until_a_stop_error(monkeypatch, caplog, error, times):
    monkeypatch.setattr(background_coroutines, "PAUSE_SECONDS", 0)
    starts: list[int] = []

    async def work() -> None:
        starts.append(1)
        if len(starts) < 3:
            raise error

    await background_coroutines.run_forever(work, stop_on=(UnreachableError,))
    assert len(starts) == times
    assert ("failed unexpectedly" in caplog.text) == (times > 1)

"""Which tests share a process: those of a file, since what they share is made once; and all of the web UI's."""

from __future__ import annotations

from pathlib import Path

import pytest

UI = Path(__file__).parent / "e2e" / "ui"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = UI if item.path.is_relative_to(UI) else item.path
        item.add_marker(pytest.mark.xdist_group(str(place.relative_to(UI.parents[1]))))

"""How an error leaves the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aaiclick.cli import main
from aaiclick.settings import get_settings


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.mark.parametrize("error", [ValueError("odd"), OSError(5, "Input/output error")], ids=["defect", "refusal"])
@pytest.mark.parametrize(
    ("value", "shown"), [("1", True), ("true", True), ("0", False), ("false", False), ("", False), ("perhaps", False)]
)
def test_who_asks_for_a_traceback_gets_one(monkeypatch, capsys, error: Exception, value: str, shown: bool) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setenv("AAICLICK_DEBUG", value)
    monkeypatch.setattr(main.cli, "main", fail)
    assert main.run([]) == 1
    said = capsys.readouterr().err
    assert ("Traceback" in said) == shown
    assert "AAICLICK_DEBUG=1 shows where" in said

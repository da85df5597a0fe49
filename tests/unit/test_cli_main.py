"""Error reporting of the command line."""

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
def test_debug_setting_prints_a_traceback(monkeypatch, capsys, error: Exception, value: str, shown: bool) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setenv("AAICLICK_DEBUG", value)
    monkeypatch.setattr(main.cli, "main", fail)
    assert main.run_command([]) == 1
    stderr = capsys.readouterr().err
    assert ("Traceback" in stderr) == shown
    assert "AAICLICK_DEBUG=1" in stderr

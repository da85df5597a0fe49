"""Error reporting of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    names: dict[str, Any] = {"error": error}
    code = compile("def fail(*_, **__): raise error", main.__file__, "exec")  # raised by code of aaiclick
    exec(code, names)
    fail = names["fail"]
    monkeypatch.setenv("AAICLICK_DEBUG", value)
    monkeypatch.setattr(main.cli, "main", fail)
    assert main.run_command([]) == 1
    stderr = capsys.readouterr().err
    assert ("Traceback" in stderr) == shown
    assert "AAICLICK_DEBUG=1" in stderr


def test_error_in_user_code_is_not_called_a_bug(monkeypatch, capsys) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise KeyError("Cork")

    monkeypatch.setattr(main.cli, "main", fail)
    assert main.run_command([]) == 1
    stderr = capsys.readouterr().err
    assert "error: KeyError: 'Cork'" in stderr
    assert 'raise KeyError("Cork")' in stderr
    assert "bug" not in stderr

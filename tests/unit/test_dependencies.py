"""Every dependency has bounds and a reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = [each for group in PROJECT["optional-dependencies"].values() for each in group]
WANTED = sorted({each for each in [*PROJECT["dependencies"], *EXTRAS] if not each.startswith("aaiclick")})


@pytest.mark.parametrize("wanted", WANTED)
def test_it_is_bounded_and_explained(wanted):
    name, bounds = re.match(r"([A-Za-z0-9._-]+)(?:\[.*?\])?(.*)", wanted.partition(";")[0].replace(" ", "")).groups()
    assert re.search(r">=|==|~=", bounds), "it has no lower bound"
    assert re.search(r"<|==|~=", bounds), "it has no upper bound"
    assert name.lower() in (ROOT / "docs" / "dependencies.md").read_text().lower(), "docs/dependencies.md is silent"

"""Every dependency has version bounds and a documented reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = [requirement for group in PROJECT["optional-dependencies"].values() for requirement in group]
REQUIREMENTS = sorted({*PROJECT["dependencies"], *EXTRAS})


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_dependency_is_bounded_and_explained(requirement):
    name, bounds = re.match(
        r"([A-Za-z0-9._-]+)(?:\[.*?\])?(.*)", requirement.partition(";")[0].replace(" ", "")
    ).groups()
    assert re.search(r">=|==|~=", bounds), "no lower bound"
    assert re.search(r"<|==|~=", bounds), "no upper bound"
    assert name.lower() in (ROOT / "docs" / "internals" / "dependencies.md").read_text().lower(), (
        "not in docs/internals/dependencies.md"
    )

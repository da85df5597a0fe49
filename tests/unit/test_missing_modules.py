"""Remedies for missing dependencies, compared with the declared dependencies of both packages."""

from __future__ import annotations

import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from aaiclick.missing_modules import EMBEDDED_MODULES, SERVER_MODULES, WORKER_MODULES, find_remedy

ROOT = Path(__file__).parents[2]


def read_requirements(path: Path, extra: str | None = None) -> dict[str, str]:
    """Version bounds by distribution."""
    project = tomllib.loads(path.read_text())["project"]
    texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {canonicalize_name(Requirement(text).name): text for text in texts}


FULL = read_requirements(ROOT / "pyproject.toml")
CLIENT = read_requirements(ROOT / "packages" / "client" / "pyproject.toml")
WORKER = read_requirements(ROOT / "packages" / "client" / "pyproject.toml", "worker")


def test_client_package_has_the_version_bounds_of_the_full_package() -> None:
    assert {name: FULL[name] for name in CLIENT | WORKER} == CLIENT | WORKER


def test_every_dependency_that_the_client_lacks_has_a_remedy() -> None:
    distributions = packages_distributions()
    named = {
        canonicalize_name(distributions[module][0]) for module in SERVER_MODULES - {"starlette"} | EMBEDDED_MODULES
    }
    assert named == set(FULL) - set(CLIENT) - set(WORKER)
    assert {canonicalize_name(distributions[module][0]) for module in WORKER_MODULES} == set(WORKER)


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("pyarrow.lib", "pip install 'aaiclick-client[worker]'"),
        ("fastapi", "install it instead of aaiclick-client"),
        ("boto3", "pip install 'aaiclick[aws]'"),
        ("shop_jobs", ""),
    ],
)
def test_remedy_names_the_package_to_install(module: str, remedy: str) -> None:
    text = find_remedy(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert remedy in text
    assert bool(remedy) == bool(text)

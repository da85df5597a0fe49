"""`aaiclick init`: create a project with a first job, a first DAG and their tests."""

from __future__ import annotations

import keyword
import os
import re
import shlex
import sys
from pathlib import Path
from string import Template

import click

from aaiclick._version import __version__
from aaiclick.cli.output import print_message
from aaiclick.cli.project_template import FILES
from aaiclick.errors import RequestError

MAX_NAMED = 5


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--package", default=None, help="Name of the package [default: from the name of the directory].")
def init(directory: Path, package: str | None) -> None:
    """Create a project in DIRECTORY: a package with a job, a DAG, tests of both, pyproject.toml and a CI file.

    Existing files are never changed.

    \b
    aaiclick init shop
    cd shop && python -m pytest
    """
    directory = directory.absolute()
    package = package or re.sub(r"\W+", "_", directory.name.lower()).strip("_")
    _check_package(package)
    names = {"package": package, "name": package.replace("_", "-"), "version": __version__}
    files = {directory / Template(path).substitute(names): text for path, text in FILES.items()}
    existing = sorted(str(path.relative_to(directory)) for path in files if path.exists())
    if existing:
        listed = ", ".join(existing[:MAX_NAMED])
        raise RequestError(
            f"{directory} already contains {listed}.", remedy="Choose a new directory: aaiclick init NAME"
        )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).safe_substitute(names), encoding="utf-8")
        click.echo(path.relative_to(directory))
    change = "" if directory == Path.cwd() else f"cd {shlex.quote(os.path.relpath(directory))} && "
    print_message(f"Project {names['name']} created. Run its tests with: {change}python -m pytest")
    print_message(f"Then: {change}aaiclick run {package}.jobs.report_trips")


def _check_package(package: str) -> None:
    if not package.isidentifier() or keyword.iskeyword(package):
        raise RequestError(f"{package!r} cannot be the name of a package.", remedy="Name one: --package my_project")
    if package in sys.stdlib_module_names or package in ("aaiclick", "tests", "test", "dags"):
        raise RequestError(
            f"The package {package!r} would hide a module of the same name.",
            remedy="Name another: --package my_project",
        )

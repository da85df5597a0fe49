"""Entry points of `aaiclick run`: names of files get the name of the function to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from aaiclick.cli.entrypoint_import import split_entrypoint
from aaiclick.cli.param_types import split_names
from aaiclick.errors import EntrypointError


@pytest.mark.parametrize(
    ("entrypoint", "remedy"),
    [
        ("shop.py", "Name a function: aaiclick run shop.FUNCTION"),
        ("./shop.py", "Name a function: aaiclick run shop.FUNCTION"),
        ("shop.py:nightly", "Name a function: aaiclick run shop.nightly"),
        ("jobs/shop.py:nightly", "Name a function: aaiclick run jobs.shop.nightly"),
        ("./shop.nightly", "Name a function: aaiclick run shop.nightly"),
        ("shop/nightly", "Name a function: aaiclick run shop.nightly.FUNCTION"),
        ("/srv/code/shop.py", "Name a function: cd /srv/code && aaiclick run shop.FUNCTION"),
        ("my-shop.py", "Write package.module.function; each name consists of letters, digits and '_'."),
    ],
)
def test_names_of_files_are_explained(
    entrypoint: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EntrypointError) as caught:
        split_entrypoint(entrypoint)
    assert (caught.value.what, caught.value.remedy) == (f"{entrypoint!r} is a file name.", remedy)


def test_option_with_commas_is_split() -> None:
    assert split_names(None, None, ("shop, mails", "", "reports")) == ("shop", "mails", "reports")  # pyright: ignore[reportArgumentType]

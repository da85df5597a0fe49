"""docs/expressions.md has every method of expressions, and its examples give the results that it shows."""

from __future__ import annotations

import pytest

from tests.integration.data import reference_objects
from tests.integration.data.reference import PAGE, SECTIONS, examples, make_page, public_methods


@pytest.mark.parametrize(("title", "namespace", "owner", "text"), SECTIONS)
def test_every_public_method_has_an_example(title, namespace, owner, text):
    assert set(examples(text, namespace)) == set(public_methods(owner)), title


async def test_the_reference_page_shows_current_results(data):
    assert PAGE.read_text(encoding="utf-8") == await make_page(), "run python -m tests.integration.data.reference"


@pytest.mark.parametrize(("title", "owner", "text"), reference_objects.SECTIONS)
def test_every_method_of_objects_has_an_example(title, owner, text):
    for name in public_methods(owner):
        assert reference_objects.example_of(name, text), title


async def test_the_page_of_objects_shows_current_results(data):
    expected = await reference_objects.make_objects_page()
    page = reference_objects.PAGE.read_text(encoding="utf-8")
    assert page == expected, "run python -m tests.integration.data.reference_objects"

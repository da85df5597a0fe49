"""The mutations fit the code: their texts and tests exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.__main__ import MUTATIONS, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.guard)
def test_texts_and_tests_of_mutations_exist(mutation) -> None:
    assert mutation.old in (ROOT / mutation.file).read_text()
    assert mutation.old != mutation.new
    for test in mutation.tests:
        path, _, name = test.partition("::")
        text = Path(ROOT / path).read_text()
        assert f"def {name.partition('[')[0]}(" in text if name else text


def test_guards_of_mutations_are_distinct() -> None:
    guards = [mutation.guard for mutation in MUTATIONS]
    assert len(set(guards)) == len(guards)

"""Mutation tests of guards: `python -m tests.mutations [WORDS]`.

Each mutation removes one guard from a copy of the package, and the tests named for it must fail on that copy. They must
pass on a copy without a mutation first. A mutation that no test notices is printed as such, and the exit code is 1.
WORDS select mutations by their description.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One guard, the text that removes it, and the tests that must fail without it."""

    guard: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

"""Rules of the data tests in a DAG file that concern several of their fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aaiclick.catalog.dags.data_tests import TABLE_TESTS, TEST_KEYS
from aaiclick.catalog.dags.findings import Data, Finding, as_list, as_mapping, get_name
from aaiclick.catalog.dags.yaml_tree import Path
from aaiclick.catalog.errors import QueryRefusedError
from aaiclick.catalog.queries.select_parser import find_datasets_read
from aaiclick.data.compile.data_test_queries import explain_pattern


def has_quarantine(output: Any) -> bool:
    """Return whether a test of an output quarantines rows."""
    return any(_on_failure(as_mapping(test)) == "quarantine" for test in as_list(as_mapping(output).get("tests")))


def check_tests(base: Path, definition: Data) -> Iterator[Finding]:
    """Yield findings about the tests of the outputs of a definition."""
    for index, output in enumerate(as_list(definition.get("outputs"))):
        path = (*base, "outputs", index, "tests")
        tests = as_list(as_mapping(output).get("tests"))
        if tests and as_mapping(as_mapping(output).get("storage")).get("glob") is not None:
            yield Finding(
                path, "Readers see external files before a test can run.", "Test them in a definition that reads them."
            )
        for number, test in enumerate(tests):
            if isinstance(test, dict):
                yield from _check_test((*path, number), as_mapping(test), get_name(output, "name"))


def _on_failure(test: Data) -> object:
    settings = next((as_mapping(test[key]) for key in TEST_KEYS if key in test and key != "references"), Data())
    return settings.get("on_failure") or test.get("on_failure")


def _check_test(path: Path, test: Data, output: str | None) -> Iterator[Finding]:
    keys = [key for key in test if key in TEST_KEYS]
    if not keys and any(key != "on_failure" for key in test):
        return  # the unknown key is reported
    if len(keys) != 1:
        what = "The test has no key." if not keys else f"The test has {len(keys)} keys: {', '.join(keys)}."
        at_key = len(keys) > 1
        where = (*path, keys[1]) if at_key else path
        yield Finding(where, what, f"Write one of {', '.join(TEST_KEYS)} per test.", at_key)
        return
    key = keys[0]
    settings = as_mapping(test[key]) if key != "references" else {}
    if "on_failure" in settings and "on_failure" in test:
        yield Finding((*path, "on_failure"), "on_failure is set twice.", "Keep one.", True)
    if key in TABLE_TESTS and _on_failure(test) == "quarantine":
        where = (*path, key, "on_failure") if "on_failure" in settings else (*path, "on_failure")
        yield Finding(
            where, f"{key} is about all rows together; none of them can be quarantined.", "Use block or warn."
        )
    if key == "references":
        yield from _check_references(path, as_mapping(test[key]), output)
    elif key == "sql":
        yield from _check_query((*path, key), test[key])
    elif key == "matches":
        yield from _check_pattern((*path, key, "pattern"), settings.get("pattern"))
    else:
        yield from _check_bounds((*path, key), key, settings)


def _check_bounds(path: Path, key: str, settings: Data) -> Iterator[Finding]:
    if key not in ("between", "rows") or not settings:
        return
    change = as_mapping(settings.get("change"))
    names = ("low", "high") if key == "between" else ("at_least", "at_most")
    low, high = settings.get(names[0]), settings.get(names[1])
    if low is None and high is None and not (change.keys() & {"from", "to"}):
        remedy = f"Add {names[0]}, {names[1]} or both." if key == "between" else "Add at_least, at_most or change."
        yield Finding(path, f"{key} has no bound.", remedy)
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        yield Finding((*path, names[1]), f"{names[1]} is less than {names[0]}.", "No row can pass: swap them.")


def _check_references(path: Path, references: Data, output: str | None) -> Iterator[Finding]:
    for column, reference in references.items():
        if isinstance(reference, str) and reference.partition(".")[0] == output:
            yield Finding(
                (*path, "references", column),
                "The output refers to itself.",
                f"Use sql: a query over this and {output}.",
            )


def _check_pattern(path: Path, pattern: Any) -> Iterator[Finding]:
    if isinstance(pattern, str) and (problem := explain_pattern(pattern)):
        yield Finding(path, f"The pattern is not a regular expression (RE2): {problem}.", "Correct it.")


def _check_query(path: Path, query: Any) -> Iterator[Finding]:
    if not isinstance(query, str):
        return
    try:
        find_datasets_read(query)
    except QueryRefusedError as error:
        yield Finding(path, error.what, error.remedy)

"""Malformed DAG files are rejected with all their errors and positions, in bounded time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aaiclick.catalog.dags.load import load_dag, load_dag_file
from aaiclick.catalog.dags.yaml_tree import MAX_BYTES, MAX_PROBLEMS
from aaiclick.catalog.errors import DagError

CORPUS = Path(__file__).with_name("malformed")
EXPECTED = json.loads((CORPUS / "expected.json").read_text(encoding="utf-8"))
EXAMPLE = Path(__file__).parents[3] / "examples" / "dags" / "orders.yaml"


def test_corpus_is_complete():
    assert sorted(EXPECTED) == sorted(path.stem for path in CORPUS.glob("*.yaml"))
    assert len(EXPECTED) >= 50


@pytest.mark.parametrize("name", EXPECTED)
def test_malformed_file_reports_all_errors_with_positions(name):
    with pytest.raises(DagError) as caught:
        load_dag_file(CORPUS / f"{name}.yaml")
    assert [str(problem) for problem in caught.value.problems] == EXPECTED[name]


def test_the_message_names_file_line_and_column_of_each():
    with pytest.raises(DagError) as caught:
        load_dag((CORPUS / "misspelt_key.yaml").read_bytes(), "shop.yaml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "shop.yaml has 2 errors; nothing was changed."
    assert lines[2].startswith(
        "shop.yaml:5:5: jobs[0].opertor: There is no key 'opertor' here. Did you mean 'operator'?"
    )


def test_a_file_that_is_too_large_is_not_read():
    with pytest.raises(DagError, match="too large"):
        load_dag(b"#" * (MAX_BYTES + 1))


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(DagError, match="cannot be read"):
        load_dag_file(tmp_path / "absent.yaml")
    with pytest.raises(DagError, match="cannot be read"):
        load_dag_file(tmp_path)


def test_number_of_reported_errors_is_limited():
    with pytest.raises(DagError) as caught:
        load_dag("a:\n" * 5000)
    assert len(caught.value.problems) <= MAX_PROBLEMS


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000, b"{" * 100_000, b"- " * 50_000, b"? " * 50_000, b"a: " + b"x " * 50_000, b"&a " * 50_000,
        b"!" * 100_000, b"'" * 100_000, b'"' + b"\\n" * 50_000, b"a: &a [*a]", b"%YAML 1." + b"9" * 5000 + b"\n--- a",
        b"a: " + b"1" * 5000, b"- " + b"[1, " * 5000, b"name: &n demo\njobs: [" + b"*n, " * 25_000 + b"]",
    ],
    ids=lambda content: content[:12],
)  # fmt: skip
def test_hostile_files_end_quickly(content):
    with pytest.raises(DagError):
        load_dag(content)


def is_answered(content: bytes):
    """Assert that it loads, or that every error has a position inside the file."""
    try:
        load_dag(content)
    except DagError as error:
        problems = error.problems
    else:
        return
    lines = content.decode("utf-8", "replace").count("\n") + 1
    assert problems
    for problem in problems:
        assert problem.what
        assert 1 <= problem.position.line <= lines + 1
        assert problem.position.column >= 1


VALID = EXAMPLE.read_bytes()
PIECES = [
    b"- ", b": ", b"[", b"]", b"{", b"}", b"'", b'"', b"*a", b"&a ", b"!x ", b"\t", b"\n", b"  ", b"null", b"<<: ",
    b"? ", b"| ", b"> ", b"%", b"@", b"\xff", b"\x00", b"---\n", b"...\n", b"~", b"1e999", b"0x", b"\\u0000", b"name",
    b"jobs:",
]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, len(VALID)), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=4)
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_file_with_broken_parts_loads_or_reports_positions(edits):
    content = VALID
    for position, removed, piece in edits:
        content = content[:position] + piece + content[position + removed :]
    is_answered(content)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(0, 6)), min_size=1, max_size=4))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_file_with_shuffled_lines_loads_or_reports_positions(moves):
    lines = VALID.splitlines(keepends=True)
    for source, target, indent in moves:
        line = lines.pop(source % len(lines))
        lines.insert(target % len(lines), b" " * indent + line.lstrip())
    is_answered(b"".join(lines))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"\xef\xbb\xbf")
@example(b"\x85")
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_load_or_report_positions(content):
    is_answered(content)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["source", "sql", "raw"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["name", "activation", "operator", "source", "inputs", "outputs", "config", "unique_key", "scaling", "secrets",
        "update_strategy", "execution_strategy", "idle_timeout", "bootstrap", "runtime", "max_attempts"]  # fmt: skip


@given(
    st.fixed_dictionaries(
        {"jobs": st.lists(st.dictionaries(st.sampled_from(KEYS), values, max_size=6), max_size=3) | values},
        optional={"name": values, "defaults": values, "publish": values},
    )
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_of_wrong_type_are_reported(data):
    is_answered(json.dumps(data).encode())

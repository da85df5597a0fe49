"""What the gate lets through, and how problems are told."""

import pytest

from aaiclick import errors
from aaiclick.data import errors as data_errors
from aaiclick.errors import AaiclickError
from aaiclick.server.graphs import nodes_of
from aaiclick.server.logs import _whole
from aaiclick.server.permissions import Permission, permissions_of
from aaiclick.server.problems import KINDS, kind_of
from aaiclick.server.shapes import NewJob

EVERY = [
    kind
    for module in (errors, data_errors)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, AaiclickError)
]


@pytest.mark.parametrize("kind", EVERY)
def test_every_error_has_a_status_and_a_code(kind):
    found = kind_of(kind("It broke."))
    assert 400 <= found.status < 600
    assert found.code.replace("_", "").isalpha()


def test_words_for_the_operator_do_not_leave():
    for kind in (errors.UnreachableError, errors.UnauthorisedError, errors.SettingsError, AaiclickError):
        assert KINDS[kind].secret


def test_scopes_add_up_and_workers_stand_apart():
    assert permissions_of(["worker"], operates=True) == {Permission.PUBLIC, Permission.WORKER}
    assert Permission.OPERATOR not in permissions_of(["admin"], operates=False)
    assert Permission.OPERATOR in permissions_of(["admin"], operates=True)
    assert permissions_of(["reader"], operates=True) == {Permission.PUBLIC, Permission.READER, Permission.OBSERVER}
    assert permissions_of(["nonsense"], operates=True) == {Permission.PUBLIC}


@pytest.mark.parametrize(
    ("data", "at_end", "kept"),
    [
        (b"abc", False, b"abc"),
        ("ä".encode()[:1], False, b""),
        ("aä".encode()[:2], False, b"a"),
        ("ä".encode(), False, "ä".encode()),
        ("€".encode()[:2], False, b""),
        ("x€".encode()[:3], False, b"x"),
        (b"\xff", True, b"\xff"),
        (b"", True, b""),
    ],
)
def test_a_part_of_a_log_ends_with_a_whole_character(data, at_end, kept):
    assert _whole(data, at_end) == kept


def test_a_graph_in_json_is_the_graph_that_python_builds():
    job = NewJob.model_validate(
        {
            "name": "j",
            "groups": [{"key": "g", "parent": "h"}, {"key": "h", "depends_on": ["a"]}],
            "tasks": [
                {"key": "a", "entrypoint": "m.a"},
                {"key": "b", "entrypoint": "m.b", "group": "g", "kwargs": {"x": {"object_type": "task", "task": "a"}}},
            ],
        }
    )
    g, h, a, b = nodes_of(job)
    assert (g.parent, h.previous, b.group, b.kwargs) == (h, [a], g, {"x": a})

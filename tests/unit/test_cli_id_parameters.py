"""Ids on the command line: all may be shortened to their first digits."""

import base64
import json

import click
import pytest

from aaiclick.cli.id_prefixes import LISTINGS, find_id
from aaiclick.cli.main import COMMANDS, cli
from aaiclick.cli.param_types import IdType
from aaiclick.errors import RequestError

IDS_OF_OTHERS = {"member_id", "external_id", "user_id", "key_id"}
"""Text of identity providers, and ids that are not shown in tables."""


def iter_parameters(command, path):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from iter_parameters(command.get_command(context, name), f"{path} {name}")
        return
    for parameter in command.params:
        yield path, parameter


PARAMETERS = [item for name in COMMANDS for item in iter_parameters(cli.get_command(click.Context(cli), name), name)]


def test_every_id_parameter_takes_first_digits():
    named = {
        (path, parameter.name)
        for path, parameter in PARAMETERS
        if parameter.name.endswith(("_id", "_ids")) and parameter.name not in IDS_OF_OTHERS
    }
    typed = {
        (path, parameter.name): parameter.type.listing_names
        for path, parameter in PARAMETERS
        if isinstance(parameter.type, IdType) and parameter.name not in ("after", "before")
    }
    assert named == set(typed)
    assert len(typed) > 20
    assert all(names and set(names) <= set(LISTINGS) for names in typed.values())


def read_cursor(cursor):
    return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))


class Item:
    def __init__(self, item_id):
        self.id = item_id


class Operations:
    """A list of jobs, newest first."""

    ids = (1234567890123456789, 381405937744023552, 381405937744023551, 129999999999999999)

    def list_jobs(self, *, cursor, limit):
        end = read_cursor(cursor)
        return iter([Item(item_id) for item_id in self.ids if item_id < end][:limit])


class OperationsWithTasks(Operations):
    """The same jobs, and a task."""

    def list_tasks(self, *, cursor, limit):
        return iter([Item(381405937744023550)] if read_cursor(cursor) > 381405937744023550 else [])


@pytest.mark.parametrize(
    ("prefix", "found_id"),
    [
        (3814059377440235520 // 10, 381405937744023552),
        (12345, 1234567890123456789),
        (1299, 129999999999999999),
        (77, 77),
    ],
)
def test_first_digits_find_an_id(prefix, found_id):
    assert find_id(Operations(), ["jobs"], prefix) == found_id


def test_ambiguous_digits_are_refused():
    with pytest.raises(RequestError, match="381405937744023552, 381405937744023551"):
        find_id(Operations(), ["jobs"], 3814059)
    with pytest.raises(RequestError, match="begin with 12"):
        find_id(Operations(), ["jobs"], 12)


def test_digits_of_a_task_and_a_job_are_ambiguous():
    with pytest.raises(RequestError, match="Several tasks and jobs have ids that begin with 38140593774402355: "):
        find_id(OperationsWithTasks(), ["tasks", "jobs"], 38140593774402355)
    assert find_id(OperationsWithTasks(), ["tasks", "jobs"], 12345) == 1234567890123456789

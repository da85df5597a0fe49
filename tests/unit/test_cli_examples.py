"""Examples in `--help`: `run` and each group have some, and their commands and options exist."""

import shlex

import click
import pytest

from aaiclick.cli.main import COMMANDS, cli

CONTEXT = click.Context(cli)
GROUPS = [name for name in COMMANDS if isinstance(cli.get_command(CONTEXT, name), click.Group)]


def read_examples(name):
    lines = [line.strip() for line in (cli.get_command(CONTEXT, name).help or "").splitlines()]
    return [line.partition(" > ")[0] for line in lines if line.startswith("aaiclick ")]


@pytest.mark.parametrize("name", ["run", *GROUPS])
def test_help_has_examples_that_exist(name):
    examples = read_examples(name)
    assert examples
    for example in examples:
        arguments = shlex.split(example)[1:]
        command = cli
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), arguments.pop(0))
            assert command is not None, example
        options = {option for parameter in command.params for option in parameter.opts}
        if not command.context_settings.get("ignore_unknown_options"):
            assert {argument for argument in arguments if argument.startswith("--")} <= options, example

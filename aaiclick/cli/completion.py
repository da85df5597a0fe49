"""`aaiclick completion`: scripts that complete commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_AAICLICK_COMPLETE"
"""Set by the script when it calls aaiclick for completions; click reads it."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and options.

    \b
    eval "$(aaiclick completion bash)"                                    in ~/.bashrc
    eval "$(aaiclick completion zsh)"                                     in ~/.zshrc
    aaiclick completion fish > ~/.config/fish/completions/aaiclick.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None  # noqa: S101
    click.echo(completion_class(context.find_root().command, {}, "aaiclick", VARIABLE).source())

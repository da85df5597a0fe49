"""`aaiclick mcp`: tools for AI assistants over standard input and output."""

from __future__ import annotations

import asyncio

import click

from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.remote import is_remote
from aaiclick.client.endpoints import SyncEndpoints


@click.command()
@click.option("--org", default=None, help="Organisation [default: all locally, that of the API key remotely].")
@click.option("--as", "reads_as", default=None, metavar="USER", help="Read datasets with the roles of this user.")
@click.option("--allow", is_flag=True, help="Also offer tools that retry, cancel, redrive and deploy, after a plan.")
@click.option(
    "--max-changes", type=click.IntRange(1, 1000), default=20, show_default=True,
    help="With --allow: most changes of one session.",
)  # fmt: skip
def mcp(org: str | None, reads_as: str | None, allow: bool, max_changes: int) -> None:
    """Serve tools for AI assistants (Model Context Protocol) over standard input and output.

    The assistant has the permissions of the local user, or with AAICLICK_SERVER those of the API key.
    """
    from aaiclick.mcp.server import OperationsThread, build_server  # the SDK is an extra, and slow to import

    max_changes = max_changes if allow else 0
    thread = OperationsThread(lambda: open_operations(org, reads_as=reads_as), max_changes=max_changes)
    more_tools = () if is_remote() else (check_installation,)
    try:
        build_server(thread, more_tools=more_tools, changes=allow).run("stdio")
    finally:
        thread.close()


def check_installation(operations: SyncEndpoints) -> dict[str, object]:  # noqa: ARG001  (every tool has it)
    """Check the installation like 'aaiclick doctor': databases, schema, workers, queues and invariants."""
    from aaiclick.cli.doctor import run_all_checks  # slow import
    from aaiclick.settings import get_settings

    findings = asyncio.run(run_all_checks(get_settings(), repair=False))
    bad = {name: finding for name, finding in findings.items() if finding.state != "ok"}
    return {
        "ok": sorted(set(findings) - set(bad)),
        "problems": [
            {"check": name, "state": f.state, "detail": f.detail, "remedy": f.remedy} for name, f in bad.items()
        ],
    }

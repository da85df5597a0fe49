"""`aaiclick approvals`: list and decide what waits for people."""

from __future__ import annotations

import json
from itertools import islice

import click

from aaiclick.api.approvals import Approval, ApprovalDetail, CreateLinkRequest, DecideRequest
from aaiclick.api.field_types import parse_fields
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models, print_record
from aaiclick.cli.param_types import APPROVAL_ID, ARGUMENT, Number
from aaiclick.cli.remote import PAGE_SIZE


@click.group()
def approvals() -> None:
    """List, show, approve and reject what waits for people.

    \b
    aaiclick approvals ls
    aaiclick approvals approve 3814059377 --reason checked
    """


@approvals.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also those that have ended.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@org_option
@output_option
def list_approvals(everything: bool, limit: int, org: str, output: str) -> None:
    """List approvals that wait for a decision, newest first."""
    with open_operations(org) as operations:
        listed = list(islice(operations.list_approvals(everything=everything, limit=min(limit, PAGE_SIZE)), limit))
    print_models(listed, output, _table_row, empty_message="Nothing waits for a decision.")


@approvals.command("show")
@click.argument("approval_id", type=APPROVAL_ID)
@org_option
@output_option
def show_approval(approval_id: int, org: str, output: str) -> None:
    """Show an approval with its data and its form."""
    with open_operations(org) as operations:
        shown = operations.get_approval(approval_id)
    print_model(shown, output, _table_row)
    if output == "json":
        return
    if shown.shown is not None:
        data = shown.shown
        click.echo()
        click.echo(data.text if data.text is not None else _format_rows(data.columns, data.rows))
    for name, field in ((shown.form or {}).get("properties", {})).items():
        print_message(f"--value {name}={field.get('default', '…')}  ({field.get('type', 'text')})")


@approvals.command("approve")
@click.argument("approval_id", type=APPROVAL_ID)
@click.option("--reason", default="", help="Is recorded with the decision.")
@click.option("--value", "pairs", type=ARGUMENT, multiple=True, metavar="NAME=VALUE",
              help="A value of the form; VALUE is JSON or plain text.")  # fmt: skip
@org_option
def approve(approval_id: int, reason: str, pairs: tuple[tuple[str, object], ...], org: str) -> None:
    """Approve: the task goes on."""
    _decide(approval_id, DecideRequest(approve=True, reason=reason, values=dict(pairs)), org)


@approvals.command("reject")
@click.argument("approval_id", type=APPROVAL_ID)
@click.option("--reason", default="", help="Is recorded with the decision.")
@org_option
def reject(approval_id: int, reason: str, org: str) -> None:
    """Reject: tasks that depend on the approval are skipped, or as it says."""
    _decide(approval_id, DecideRequest(approve=False, reason=reason), org)


@approvals.command("link")
@click.argument("approval_id", type=APPROVAL_ID)
@click.argument("recipient")
@click.option("--hours", type=Number(0, 366 * 24, min_open=True), default=168, show_default=True,
              help="Hours until the link expires.")  # fmt: skip
@org_option
@output_option
def create_link(approval_id: int, recipient: str, hours: float, org: str, output: str) -> None:
    """Create a link with which RECIPIENT decides once, without an account. It is shown only once."""
    request = parse_fields(CreateLinkRequest, {"recipient": recipient, "valid_seconds": hours * 3600})
    with open_operations(org) as operations:
        link = operations.create_approval_link(approval_id, request)
    print_record({"url": link.url, "expires": format_time(link.expires_at)}, output)


def _decide(approval_id: int, decision: DecideRequest, org: str) -> None:
    with open_operations(org) as operations:
        decided: ApprovalDetail = operations.decide_approval(approval_id, decision)
    print_message(f"{decided.title}: {decided.state}.")


def _table_row(approval: Approval) -> Row:
    return {
        "id": str(approval.id),
        "state": approval.state,
        "title": approval.title,
        "role": approval.role,
        "job": approval.job_name or "–",
        "asked": format_time(approval.created_at),
        "until": format_time(approval.expires_at) if approval.state == "waiting" else "–",
        "decided by": approval.decided_by or "–",
        "reason": approval.reason or "",
    }


def _format_rows(columns: list[str], rows: list[list[object]]) -> str:
    cells = [[value if isinstance(value, str) else json.dumps(value) for value in row] for row in rows]
    return "\n".join("\t".join(row) for row in [columns, *cells])

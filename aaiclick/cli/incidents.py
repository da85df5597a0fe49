"""`aaiclick incidents`: list, show, acknowledge, snooze and close incidents."""

from __future__ import annotations

from itertools import islice
from typing import get_args

import click

from aaiclick.api.field_types import parse_fields
from aaiclick.api.incidents import Incident, SnoozeIncidentRequest
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import error_headline, format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models
from aaiclick.cli.param_types import INCIDENT_ID
from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.cron import parse_interval
from aaiclick.store.enums import IncidentRule


@click.group()
def incidents() -> None:
    """List, acknowledge, snooze and close incidents.

    \b
    aaiclick incidents ls
    aaiclick incidents snooze 3814059377 --for 2h
    """


@incidents.command("ls")
@click.option("--rule", type=click.Choice(get_args(IncidentRule)), help="Only of this rule.")
@click.option("--unacknowledged", is_flag=True, help="Only those that are not acknowledged.")
@click.option("--closed", is_flag=True, help="Closed ones too.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@org_option
@output_option
def list_incidents(
    rule: IncidentRule | None, unacknowledged: bool, closed: bool, limit: int, org: str, output: str
) -> None:
    """List open incidents, newest first."""
    with open_operations(org) as operations:
        listing = operations.list_incidents(
            acknowledged=False if unacknowledged else None, rule=rule, closed=closed, limit=min(limit, PAGE_SIZE)
        )
        print_models(list(islice(listing, limit)), output, _table_row, empty_message="No open incidents.")


@incidents.command("show")
@click.argument("incident_id", type=INCIDENT_ID)
@org_option
@output_option
def show_incident(incident_id: int, org: str, output: str) -> None:
    """Show an incident with its cause, and the command that may fix it."""
    with open_operations(org) as operations:
        shown = operations.get_incident(incident_id)
    print_model(shown, output, _table_row)
    if output == "json":
        return
    if shown.cause:
        click.echo(f"\n{shown.cause}")
    if shown.command:
        print_message(f"Next: {shown.command}")


@incidents.command("ack")
@click.argument("incident_id", type=INCIDENT_ID)
@org_option
def acknowledge_incident(incident_id: int, org: str) -> None:
    """Acknowledge an incident: it is not escalated any more."""
    with open_operations(org) as operations:
        operations.acknowledge_incident(incident_id)
    print_message(f"Incident {incident_id} acknowledged.")


@incidents.command("snooze")
@click.argument("incident_id", type=INCIDENT_ID)
@click.option("--for", "interval", default="1h", show_default=True, help="How long, such as 30m, 2h or 1d.")
@org_option
def snooze_incident(incident_id: int, interval: str, org: str) -> None:
    """Send no messages about an incident for some time; then one if it is still open."""
    request = parse_fields(SnoozeIncidentRequest, {"seconds": parse_interval(interval).total_seconds()})
    with open_operations(org) as operations:
        snoozed = operations.snooze_incident(incident_id, request.seconds)
    print_message(f"Incident {incident_id} snoozed until {format_time(snoozed.snoozed_until)}.")


@incidents.command("close")
@click.argument("incident_id", type=INCIDENT_ID)
@org_option
def close_incident(incident_id: int, org: str) -> None:
    """Close an incident; another occurrence opens a new one."""
    with open_operations(org) as operations:
        operations.close_incident(incident_id)
    print_message(f"Incident {incident_id} closed.")


def _table_row(incident: Incident) -> Row:
    return {
        "id": str(incident.id),
        "state": incident.state,
        "severity": incident.severity,
        "rule": incident.rule,
        "title": incident.title,
        "count": incident.count,
        "opened": format_time(incident.opened_at),
        "last": format_time(incident.last_at),
        "cause": error_headline(incident.cause) if incident.cause else "",
    }

"""`aaiclick notify`: channels, rules and messages of notifications."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, get_args

import click

from aaiclick.api.field_types import parse_fields
from aaiclick.api.notifications import Channel, ChannelRequest, Notification, Rule, RuleRequest
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import error_headline, format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models
from aaiclick.cli.param_types import ARGUMENT, INCIDENT_ID
from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.cron import parse_interval
from aaiclick.store.enums import ChannelType, IncidentRule, Severity

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@click.group()
def notify() -> None:
    """Send messages about incidents: channels, rules, deliveries.

    \b
    aaiclick notify add-channel ops webhook --set url=https://example.org/hook
    aaiclick notify test ops
    """


@notify.command("ls")
@click.option("--incident", "incident_id", type=INCIDENT_ID, help="Only about this incident.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@org_option
@output_option
def list_notifications(incident_id: int | None, limit: int, org: str, output: str) -> None:
    """List messages, newest first."""
    with open_operations(org) as operations:
        listing = operations.list_notifications(incident_id=incident_id, limit=min(limit, PAGE_SIZE))
        print_models(list(islice(listing, limit)), output, _message_row, empty_message="No messages.")


@notify.command("channels")
@org_option
@output_option
def list_channels(org: str, output: str) -> None:
    """List channels."""
    with open_operations(org) as operations:
        print_models(operations.list_notification_channels(), output, _channel_row, empty_message="No channels.")


@notify.command("add-channel")
@click.argument("name")
@click.argument("channel_type", type=click.Choice(get_args(ChannelType)))
@click.option("--set", "settings", type=ARGUMENT, multiple=True, metavar="NAME=VALUE",
              help="A setting, such as url=… or host=…; VALUE is JSON or plain text.")  # fmt: skip
@click.option("--secret", "secrets", multiple=True, metavar="NAME=SECRET",
              help="A setting with a secret of the organisation as its value.")  # fmt: skip
@click.option("--role", "roles", multiple=True, help="Dataset role of the channel; may be repeated.")
@click.option("--digest", help="Send a digest at this interval, such as 15m or 1d.")
@click.option("--quiet", help="Quiet hours, such as 22:00-07:00; critical incidents are sent at once.")
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of the quiet hours.")
@org_option
@output_option
def add_channel(
    name: str,
    channel_type: ChannelType,
    settings: tuple[tuple[str, object], ...],
    secrets: tuple[str, ...],
    roles: tuple[str, ...],
    digest: str | None,
    quiet: str | None,
    timezone: str,
    org: str,
    output: str,
) -> None:
    """Create a channel, or replace the one of the same name."""
    _check_name(name)
    references = {key: {"secret": value} for key, _, value in (text.partition("=") for text in secrets)}
    begin, _, end = (quiet or "").partition("-")
    fields: dict[str, object] = {
        "type": channel_type, "config": dict(settings) | references, "roles": list(roles), "timezone": timezone,
        "digest_seconds": digest and parse_interval(digest).total_seconds(),
        "quiet_from": begin or None, "quiet_until": end or None,
    }  # fmt: skip
    with open_operations(org) as operations:
        print_model(
            operations.set_notification_channel(name, parse_fields(ChannelRequest, fields)), output, _channel_row
        )
    print_message(f"Test it with: aaiclick notify test {name}")


@notify.command("rm-channel")
@click.argument("name")
@org_option
def remove_channel(name: str, org: str) -> None:
    """Delete a channel that no rule names."""
    _check_name(name)
    with open_operations(org) as operations:
        operations.delete_notification_channel(name)
    print_message(f"Channel {name} deleted.")


@notify.command("test")
@click.argument("name")
@org_option
def test_channel(name: str, org: str) -> None:
    """Send a test message to a channel now."""
    _check_name(name)
    with open_operations(org) as operations:
        operations.test_notification_channel(name)
    print_message(f"The channel {name} accepted a test message.")


@notify.command("rules")
@org_option
@output_option
def list_rules(org: str, output: str) -> None:
    """List rules."""
    with open_operations(org) as operations:
        print_models(operations.list_notification_rules(), output, _rule_row, empty_message="No rules.")


@notify.command("add-rule")
@click.argument("name")
@click.option("--channel", "channels", multiple=True, required=True, help="A channel; may be repeated.")
@click.option("--rule", "rules", type=click.Choice(get_args(IncidentRule)), multiple=True,
              help="Only incidents of this rule; may be repeated.")  # fmt: skip
@click.option("--severity", "min_severity", type=click.Choice(get_args(Severity)), default="info", show_default=True,
              help="Only incidents of this severity or a higher one.")  # fmt: skip
@click.option("--dag", "dag_name", help="Only of this DAG; * and ? match any text and any character.")
@click.option("--job", "job_name", help="Only of jobs with this name.")
@click.option("--type", "task_type", help="Only of tasks of this type.")
@click.option("--tag", help="Only with this tag.")
@click.option("--escalate-after", help="Escalate if it is not acknowledged within this time, such as 30m.")
@click.option("--escalate-to", multiple=True, help="Channel of the escalation; may be repeated.")
@org_option
@output_option
def add_rule(name: str, escalate_after: str | None, org: str, output: str, **fields: Any) -> None:
    """Create a rule, or replace the one of the same name: which incidents are sent to which channels."""
    _check_name(name)
    seconds = escalate_after and parse_interval(escalate_after).total_seconds()
    fields |= {key: list(fields[key]) for key in ("channels", "rules", "escalate_to")}
    request = parse_fields(RuleRequest, {**fields, "escalate_after_seconds": seconds})
    with open_operations(org) as operations:
        print_model(operations.set_notification_rule(name, request), output, _rule_row)


@notify.command("rm-rule")
@click.argument("name")
@org_option
def remove_rule(name: str, org: str) -> None:
    """Delete a rule."""
    _check_name(name)
    with open_operations(org) as operations:
        operations.delete_notification_rule(name)
    print_message(f"Rule {name} deleted.")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise click.UsageError("A name consists of lower-case letters, digits, _ and -, at most 63.")


def _message_row(message: Notification) -> Row:
    return {
        "id": str(message.id),
        "incident": str(message.incident_id),
        "event": message.event,
        "channel": message.channel,
        "title": message.title,
        "due": format_time(message.due_at),
        "delivered": format_time(message.delivered_at),
        "error": error_headline(message.error) if message.error else "",
    }


def _channel_row(channel: Channel) -> Row:
    return {
        "name": channel.name,
        "type": channel.type,
        "state": "failing" if channel.failing else "ok",
        "roles": ", ".join(channel.roles),
        "digest": "" if channel.digest_seconds is None else f"{channel.digest_seconds:g} s",
        "quiet": "" if channel.quiet_from is None else f"{channel.quiet_from}-{channel.quiet_until} {channel.timezone}",
    }


def _rule_row(rule: Rule) -> Row:
    filters = {"dag": rule.dag_name, "job": rule.job_name, "type": rule.task_type, "tag": rule.tag}
    return {
        "name": rule.name,
        "channels": ", ".join(rule.channels),
        "rules": ", ".join(rule.rules) or "all",
        "severity": rule.min_severity,
        "matches": ", ".join(f"{key} {value}" for key, value in filters.items() if value) or "all",
        "escalates": ""
        if rule.escalate_after_seconds is None
        else f"after {rule.escalate_after_seconds:g} s to {', '.join(rule.escalate_to)}",
    }

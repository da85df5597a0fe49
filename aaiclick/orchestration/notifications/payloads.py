"""The form of a message for each type of channel, as pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

from aaiclick.orchestration.notifications.messages import IncidentMessage, Message, cause_line, describe_event

SLACK_MARKS = {
    "info": ":information_source:",
    "warning": ":warning:",
    "error": ":red_circle:",
    "critical": ":rotating_light:",
}
MAX_BLOCK_CHARACTERS = 2_800
MAX_SUBJECT_CHARACTERS = 200


def render_text(message: Message) -> str:
    """A message as plain text."""
    parts = [message.subject] if message.is_digest else []
    parts += ["\n".join(_describe_lines(incident, whole=not message.is_digest)) for incident in message.incidents]
    if message.more:
        parts.append(f"… and {message.more} more.")
    return "\n\n".join(parts)


def _describe_lines(incident: IncidentMessage, *, whole: bool) -> Iterator[str]:
    yield f"[{incident.severity}] {describe_event(incident)}"
    if incident.count > 1:
        yield f"{incident.count} occurrences since {incident.opened_at:%Y-%m-%d %H:%M} UTC"
    if incident.event != "closed":
        if incident.cause:
            yield incident.cause if whole else cause_line(incident)
        if incident.log and whole:
            yield f"Log:\n{incident.log}"
        if incident.command:
            yield f"Fix: {incident.command}"
    yield incident.link


def render_json(message: Message) -> dict[str, object]:
    """A message for webhooks; ids are text and times RFC 3339, as in the API."""

    def to_json(incident: IncidentMessage) -> dict[str, object]:
        fields: dict[str, object] = asdict(incident)
        ids = {name: str(fields[name]) for name in ("incident_id", "job_id", "task_id") if fields[name] is not None}
        return fields | ids | {"opened_at": incident.opened_at.isoformat()}

    incidents = [to_json(incident) for incident in message.incidents]
    return {"delivery": message.delivery, "org": message.org, "incidents": incidents, "more": message.more}


def render_slack(message: Message) -> dict[str, object]:
    """A message for an incoming webhook of Slack: a fallback text and blocks."""
    blocks: list[dict[str, object]] = []
    if message.is_digest:
        blocks.append(_slack_section(f"*{_escape_slack(message.subject)}*"))
    for incident in message.incidents:
        head = f"{SLACK_MARKS[incident.severity]} *<{incident.link}|{_escape_slack(describe_event(incident))}>*"
        lines = [*_describe_lines(incident, whole=not message.is_digest)][1:-1]
        body = _escape_slack("\n".join(lines))[: MAX_BLOCK_CHARACTERS - len(head)]
        blocks.append(_slack_section(head + (f"\n```{body}```" if body else "")))
    if message.more:
        blocks.append(_slack_section(f"… and {message.more} more."))
    return {"text": _escape_slack(message.subject), "blocks": blocks[:50]}


def _slack_section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("```", "'''")


def render_teams(message: Message) -> dict[str, object]:
    """A message for a webhook of Microsoft Teams: an adaptive card."""
    body: list[dict[str, object]] = [
        {"type": "TextBlock", "size": "medium", "weight": "bolder", "wrap": True, "text": message.subject}
    ]
    for incident in message.incidents:
        lines = [*_describe_lines(incident, whole=not message.is_digest)]
        text = "\n\n".join(lines[0 if message.is_digest else 1 : -1])
        if text:
            body.append(
                {"type": "TextBlock", "wrap": True, "fontType": "monospace", "text": text[:MAX_BLOCK_CHARACTERS]}
            )
    actions = [
        {"type": "Action.OpenUrl", "title": f"Incident {incident.incident_id}", "url": incident.link}
        for incident in message.incidents[:5]
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": body, "actions": actions,
    }  # fmt: skip
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [content]}


def render_pagerduty(message: Message, routing_key: str) -> Iterator[dict[str, object]]:
    """Events of PagerDuty (Events API v2), one for each incident: it has a deduplication key of its own."""
    for incident in message.incidents:
        event: dict[str, object] = {
            "routing_key": routing_key,
            "event_action": "resolve" if incident.event == "closed" else "trigger",
            "dedup_key": f"aaiclick-{message.org}-{incident.incident_id}",
        }
        if incident.event != "closed":
            details = {
                "cause": incident.cause, "log": incident.log, "command": incident.command, "count": incident.count,
                "rule": incident.rule, "job": incident.job, "dag": incident.dag, "task": incident.task_type,
            }  # fmt: skip
            event["payload"] = {
                "summary": describe_event(incident)[:1024], "source": f"aaiclick {message.org}",
                "severity": incident.severity, "timestamp": incident.opened_at.isoformat(),
                "class": incident.rule, "custom_details": {key: value for key, value in details.items() if value},
            }  # fmt: skip
            event["links"] = [{"href": incident.link, "text": "Incident"}]
        yield event
    if message.more:
        payload = {
            "summary": f"{message.more} more messages about incidents", "source": f"aaiclick {message.org}",
            "severity": "warning",
        }  # fmt: skip
        more_key = f"aaiclick-{message.org}-{message.delivery}"
        yield {"routing_key": routing_key, "event_action": "trigger", "dedup_key": more_key, "payload": payload}


def render_email(message: Message, config: Mapping[str, Any]) -> EmailMessage:
    """A message as an e-mail; its Message-ID is that of the delivery, so that a repeated one can be recognised."""
    mail = EmailMessage()
    severity = "" if message.is_digest else f"[{message.incidents[0].severity}] "
    mail["Subject"] = " ".join(f"{severity}{message.subject}".split())[:MAX_SUBJECT_CHARACTERS]
    mail["From"] = config["sender"]
    mail["To"] = ", ".join(config["to"])
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{message.delivery}@aaiclick>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(render_text(message))
    return mail


def encode_json(payload: Mapping[str, object]) -> bytes:
    return json.dumps(payload, ensure_ascii=False).encode(errors="replace")

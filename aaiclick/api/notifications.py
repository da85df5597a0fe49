"""Schemas of notifications: channels, rules and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field, StringConstraints, field_validator, model_validator

from aaiclick.api.field_types import Name, RequestModel, Slug, Snowflake
from aaiclick.store.enums import ChannelType, IncidentRule, NotificationEvent, Severity

MAX_NAMES = 100
ClockTime = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Host = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:_-]+$")]
MAIL_ADDRESS = r"^[^\s\x00-\x1f\x7f@<>()\[\]\\,;:\"]+@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$"
MailAddress = Annotated[str, StringConstraints(max_length=320, pattern=MAIL_ADDRESS)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class SecretReference(RequestModel):
    """The name of a secret of the organisation."""

    secret: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


Url = Annotated[str, StringConstraints(max_length=2_000, pattern=r"^https?://[^\s]+$")]


class WebhookConfig(RequestModel):
    """A signed POST request with the message as JSON."""

    url: Url | SecretReference
    secret: SecretReference | None = Field(default=None, description="Key of the signature")


class ChatConfig(RequestModel):
    """An incoming webhook of Slack or Microsoft Teams; its address is a secret."""

    url: SecretReference


class PagerDutyConfig(RequestModel):
    """The integration key of a PagerDuty service (Events API v2)."""

    routing_key: SecretReference
    url: Url | None = Field(default=None, description="Another region's address")


class EmailConfig(RequestModel):
    """A mail server and recipients."""

    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: Name | None = None
    password: SecretReference | None = None
    sender: MailAddress
    to: Annotated[list[MailAddress], Field(min_length=1, max_length=MAX_NAMES)]


CONFIGS: dict[ChannelType, type[RequestModel]] = {
    "webhook": WebhookConfig,
    "slack": ChatConfig,
    "teams": ChatConfig,
    "pagerduty": PagerDutyConfig,
    "email": EmailConfig,
}


class ChannelRequest(RequestModel):
    """A channel. Secrets are named in `config` as {"secret": NAME}."""

    type: ChannelType
    config: dict[str, Any]
    roles: Annotated[list[Slug], Field(max_length=MAX_NAMES)] = Field(
        default_factory=list, description="Dataset roles: they decide which causes messages contain"
    )
    digest_seconds: Annotated[float, Field(ge=60, le=7 * 86_400)] | None = Field(
        default=None, description="Interval of digests; null: every message is sent at once"
    )
    quiet_from: ClockTime | None = Field(default=None, description="Begin of the quiet hours", examples=["22:00"])
    quiet_until: ClockTime | None = None
    timezone: Annotated[str, StringConstraints(max_length=100)] = "UTC"

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (OSError, KeyError, ValueError):  # a KeyError for an unknown name
            raise ValueError("not a time zone, such as Europe/Berlin") from None
        return value

    @model_validator(mode="after")
    def _check_config(self) -> ChannelRequest:
        self.config = CONFIGS[self.type].model_validate(self.config).model_dump(mode="json", exclude_none=True)
        if (self.quiet_from is None) != (self.quiet_until is None):
            raise ValueError("quiet hours have a begin and an end")
        return self


class Channel(BaseModel):
    """A channel of notifications."""

    name: str
    type: ChannelType
    config: dict[str, Any] = Field(description="Settings; empty for others than admins")
    roles: list[str]
    digest_seconds: float | None
    quiet_from: str | None
    quiet_until: str | None
    timezone: str
    failing: bool = Field(description="The last messages could not be delivered")


class RuleRequest(RequestModel):
    """Which incidents are sent to which channels; what is omitted matches everything. Names may contain * and ?."""

    channels: Annotated[list[Name], Field(min_length=1, max_length=MAX_NAMES)]
    rules: Annotated[list[IncidentRule], Field(max_length=MAX_NAMES)] = Field(default_factory=list)
    min_severity: Severity = "info"
    dag_name: Pattern | None = None
    job_name: Pattern | None = None
    task_type: Pattern | None = None
    tag: Pattern | None = None
    escalate_after_seconds: Annotated[float, Field(ge=60, le=30 * 86_400)] | None = None
    escalate_to: Annotated[list[Name], Field(max_length=MAX_NAMES)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_escalation(self) -> RuleRequest:
        if (self.escalate_after_seconds is None) != (not self.escalate_to):
            raise ValueError("an escalation has a time and channels")
        return self


class Rule(BaseModel):
    """A rule of notifications."""

    name: str
    channels: list[str]
    rules: list[str]
    min_severity: Severity
    dag_name: str | None
    job_name: str | None
    task_type: str | None
    tag: str | None
    escalate_after_seconds: float | None
    escalate_to: list[str]


class Notification(BaseModel):
    """A message about an incident to a channel."""

    id: Snowflake
    incident_id: Snowflake
    title: str
    channel: str
    event: NotificationEvent
    created_at: datetime
    due_at: datetime
    sent_at: datetime | None = Field(description="When its delivery was enqueued")
    delivered_at: datetime | None
    task_id: Snowflake | None
    error: str | None = Field(description="Error of the last attempt, if it is not delivered")

"""Schemas of the outcomes of attempts."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self, cast
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, model_validator

from aaiclick.api.approval_forms import check_form
from aaiclick.api.approvals import check_shown
from aaiclick.api.field_types import MAX_ITEMS, RequestModel, check_storable
from aaiclick.api.worker_protocol.field_types import (
    ElapsedSeconds,
    Ids,
    LeaseRequest,
    RowCount,
    ShortText,
    TableName,
    Text,
)
from aaiclick.store.engine.leases_and_outcomes import Failure, Success, Wait, seconds_since
from aaiclick.store.enums import Severity

LiteralText = Annotated[str, StringConstraints(max_length=1 << 20), AfterValidator(check_storable)]


class PartitionUpdate(RequestModel):
    """The new content of a partition, and the hash of the inputs that it was computed from."""

    key: Text
    rows: RowCount | None
    digest: ShortText | None = None
    inputs_hash: ShortText | None = None


class GenerationUpdate(RequestModel):
    """Rows of a generation that were published before."""

    dataset: UUID
    generation: UUID
    ticket: RowCount
    columns: dict[str, Any]
    schema_hash: ShortText
    partitions: Annotated[list[PartitionUpdate], Field(max_length=MAX_ITEMS + 1)]
    rows: RowCount | None = None
    whole: bool = False
    changed: Annotated[list[Text], Field(max_length=MAX_ITEMS + 1)] | None = None


class AlertTransition(RequestModel):
    """An alert that was raised or cleared for a key."""

    key: Text
    raised: bool
    severity: Severity
    message: Text


class DataTestOutcome(RequestModel):
    """The result of one data test of one update."""

    test: ShortText
    on_failure: Literal["block", "quarantine", "warn"]
    outcome: Literal["passed", "warned", "quarantined", "blocked"]
    rows: RowCount
    failing_rows: RowCount
    message: ShortText
    number: Annotated[int, Field(ge=0, le=10_000)]
    sample: TableName | None = Field(default=None, description="A table of the attempt with some failing rows")
    output: ShortText = ""
    dataset: UUID | None = None
    partition: Text = ""
    published: bool = False


DataTestOutcomes = Annotated[list[DataTestOutcome], Field(max_length=MAX_ITEMS)]


class TaskEffects(RequestModel):
    """What the completion of a task of a DAG writes; only datasets of its definition are accepted."""

    outputs: dict[str, Any] = Field(default_factory=dict)
    input_versions: dict[str, Any] = Field(default_factory=dict)
    inputs: Annotated[list[tuple[UUID, Text, AwareDatetime]], Field(max_length=MAX_ITEMS * 10)] = Field(
        default_factory=list, description="Dataset, partition and when that was updated"
    )
    states: Annotated[list[tuple[UUID, Text, dict[str, Any]]], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=list, description="Definition, key and state"
    )
    updates: Annotated[list[GenerationUpdate], Field(max_length=1_000)] = Field(default_factory=list)
    lineage: dict[UUID, Annotated[list[tuple[Text, UUID, Text]], Field(max_length=MAX_ITEMS)]] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Of each output generation: column, input dataset, input column",
    )
    alerts: Annotated[list[AlertTransition], Field(max_length=MAX_ITEMS * 10)] = Field(default_factory=list)
    definition: UUID
    build: UUID | None = None
    tests: DataTestOutcomes = Field(default_factory=list[DataTestOutcome], description="Results of data tests")


def _check_wait(wait: Wait) -> Wait:
    """Refuse an approval with a form or data that servers cannot show."""
    approval = wait.approval
    form: object = None if approval is None or approval.form is None else json.loads(approval.form)
    if form is not None:
        if not isinstance(form, dict):
            raise ValueError("the form of the approval is no JSON object")
        try:
            check_form(cast("dict[str, Any]", form))
        except (KeyError, TypeError) as error:
            raise ValueError(f"a field of the form has an unknown type: {error}") from None
    if approval is not None and approval.shown is not None:
        check_shown(json.loads(approval.shown))
    return wait


class CompleteRequest(LeaseRequest):
    """The attempt succeeded."""

    result: Any = None
    seconds: ElapsedSeconds | None = None
    awaits: Ids = Field(
        default_factory=list, description="Tasks that it added and returns: it completes when they have"
    )
    tables: Annotated[list[TableName], Field(max_length=MAX_ITEMS)] | None = Field(
        default=None, description="Tables within the result; an empty list if it only used some"
    )
    literal: LiteralText | None = Field(
        default=None, description="Encoded value of a small result: an Object that has no table"
    )
    effects: TaskEffects | None = Field(default=None, description="What a task of a DAG writes")
    branch: Annotated[list[ShortText], Field(max_length=1_000)] | None = Field(
        default=None, description="Names of the dependents that run; the others are skipped"
    )

    wait: Annotated[Wait, AfterValidator(_check_wait)] | None = Field(
        default=None, description="The attempt ended in order to wait: the task goes on later"
    )

    @staticmethod
    def from_success(success: Success) -> CompleteRequest:
        return CompleteRequest(
            lease=success.lease,
            result=None if success.result is None else json.loads(success.result),
            seconds=seconds_since(success.began),
            awaits=list(success.awaits),
            tables=None if success.tables is None else list(success.tables),
            literal=success.literal,
            effects=None if success.effects is None else TaskEffects.model_validate_json(success.effects),
            branch=None if success.branch is None else list(success.branch),
            wait=success.wait,
        )


class FailRequest(LeaseRequest):
    """The attempt failed."""

    error: Text
    fingerprint: Annotated[str, StringConstraints(max_length=1_000), AfterValidator(check_storable)] = ""
    permanent: bool = False
    delay_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None, description="Delay before the retry [by the retry policy of the task]"
    )
    seconds: ElapsedSeconds | None = None
    charged: bool = True
    tests: DataTestOutcomes = Field(
        default_factory=list[DataTestOutcome], description="Results of data tests, one of which failed"
    )
    outcome: Literal["FAILED", "LOST", "CANCELLED", "TIMED_OUT", "RELEASED"] = "FAILED"

    @staticmethod
    def from_failure(failure: Failure) -> FailRequest:
        values = {name: getattr(failure, name) for name in FailRequest.model_fields if name not in ("seconds", "tests")}
        tests = [DataTestOutcome(**test) for test in failure.tests]
        return FailRequest(**values, tests=tests, seconds=seconds_since(failure.began))

    @model_validator(mode="after")
    def _check_released_is_uncharged(self) -> Self:
        if self.outcome == "RELEASED" and self.charged:
            raise ValueError("an attempt that is released is not charged: set charged to false")
        return self

"""Tasks that wait for a person's decision.

    diff = compare(month)
    decision = approval("Close the books", to="finance", show=diff, form=Correction, timeout_seconds=172_800)
    close_books(decision)

An approval is a wait: no worker is occupied until a member of the role decides on the page "Waiting for people", by the
command line, the API or a one-time link.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel

from aaiclick.api.approval_forms import has_defaults, make_form
from aaiclick.api.approvals import MAX_SHOWN_VALUES
from aaiclick.api.json_schema_limits import count_values
from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_serialisation import is_reference_value
from aaiclick.orchestration.failure_paths import Branch
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import JsonResult
from aaiclick.orchestration.waits import check_seconds, make_wait
from aaiclick.store.engine.leases_and_outcomes import MAX_WAIT_SECONDS, ApprovalRequest, Wait
from aaiclick.store.name_and_key_limits import check_key

SHOWN_ROWS = 50
MAX_SHOWN_CHARACTERS = 100_000
TIMEOUT_ACTOR = "timeout"
"""`Decision.by` of a default."""

OnReject = Literal["skip", "fail", "continue"]


class Decision(BaseModel):
    """The decision of an approval: the argument of tasks that depend on it.

    ```python
    Decision(approved=True, by="ada", values={"euros": 5}).values["euros"]  # 5
    ```
    """

    approved: bool
    by: str
    """User or key that decided; "timeout" for the default."""
    reason: str = ""
    values: dict[str, Any] = {}
    """The values of the form."""


def approval(
    title: str,
    *,
    to: str = "writer",
    show: object = None,
    form: type[BaseModel] | None = None,
    timeout_seconds: float | None = None,
    default: Literal["approve", "reject"] | None = None,
    on_reject: OnReject = "skip",
) -> Any:
    """Task that completes with the Decision of a person.

    `to` is a role of the organisation, or "reader", "writer" or "admin"; admins may always decide. `show` is what the
    decision is about: an Object, the result of a task or a plain value. `form` has fields of text, numbers, dates and
    choices. After `timeout_seconds` the `default` counts, or the task fails without one. After a rejection the
    dependents are skipped; with `on_reject="fail"` the task fails, with "continue" they receive the decision.

    ```python
    approved = approval("Close the books?", to="finance", timeout_seconds=172_800)
    await create_job("close the books", approved >> load.task())
    ```
    """
    check_key("The title of an approval", title)
    check_key(f"The role of the approval {title!r:.80}", to)
    if default not in (None, "approve", "reject") or on_reject not in ("skip", "fail", "continue"):
        raise SubmitError(
            f"The approval {title!r} has default={default!r} and on_reject={on_reject!r}.",
            remedy='default is "approve", "reject" or None; on_reject is "skip", "fail" or "continue".',
        )
    schema = None if form is None else make_form(form)
    if default == "approve" and not has_defaults(schema):
        raise SubmitError(
            f'The approval {title!r} has default="approve", and its form has fields without a default.',
            remedy="Give each field of the form a default.",
        )
    arguments: dict[str, object] = {"title": title, "to": to, "on_reject": on_reject}
    if timeout_seconds is not None:
        check_seconds("An approval", timeout_seconds)
        arguments["timeout_seconds"] = timeout_seconds
    optional = {"show": show, "form": schema, "default": default}
    arguments |= {name: value for name, value in optional.items() if value is not None}
    return make_wait(f"{__name__}.run_approval", arguments, title)


async def run_approval(
    title: str,
    to: str,
    on_reject: OnReject,
    show: Any = None,
    form: dict[str, Any] | None = None,
    timeout_seconds: float = MAX_WAIT_SECONDS,
    default: Literal["approve", "reject"] | None = None,
    aaiclick_wait: Any = None,
) -> Wait | JsonResult | Branch:
    """Ask, or return the decision."""
    if aaiclick_wait is None:
        shown = None if show is None else json.dumps(await describe_shown(show))
        request = ApprovalRequest(title, to, None if form is None else json.dumps(form), shown)
        return Wait("approval", timeout_seconds, name=title, key=to, approval=request)
    fields: Mapping[str, Any] | None = aaiclick_wait.get("approval")
    if fields is None and default is None:
        raise PermanentError(
            f"{title!r} was not decided within {timeout_seconds:g} s.",
            remedy="Retry the job to ask again, or give the approval a default.",
        )
    decision = _default_decision(default == "approve", form) if fields is None else Decision.model_validate(fields)
    if decision.approved or on_reject == "continue":
        return JsonResult(decision.model_dump())
    if on_reject == "skip":
        return Branch()
    raise PermanentError(
        f"{title!r} was rejected by {decision.by}{': ' if decision.reason else ''}{decision.reason}",
        remedy="Correct what was rejected and retry the job to ask again.",
    )


def _default_decision(approved: bool, form: Mapping[str, Any] | None) -> Decision:
    fields = (form or {}).get("properties", {})
    values = {name: field.get("default") for name, field in fields.items()} if approved else {}
    return Decision(approved=approved, by=TIMEOUT_ACTOR, values=values)


async def describe_shown(value: object) -> dict[str, Any]:
    """What a person sees: the first rows of an Object, or a plain value; bounded in size."""
    if is_reference_value(value):
        obj = cast("Any", value)
        count = await obj.count()
        rows = await (obj if count <= SHOWN_ROWS else obj.head(SHOWN_ROWS)).rows()
        shown: dict[str, Any] = {"columns": list(obj.columns), "rows": [list(row.values()) for row in rows]}
        shown |= {"total": count, "table_id": obj.table_id}
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in cast("list[object]", value)):
        records = cast("list[dict[str, object]]", value)
        columns = list(records[0])
        rows_shown = [[record.get(name) for name in columns] for record in records[:SHOWN_ROWS]]
        shown = {"columns": columns, "rows": rows_shown, "total": len(records)}
    else:
        shown = {"text": value if isinstance(value, str) else json.dumps(value, indent=2, default=str)}
    text = json.dumps(shown, default=str)
    is_wide = any(count > MAX_SHOWN_VALUES for count, _ in count_values(shown))
    if is_wide or len(text) > MAX_SHOWN_CHARACTERS:
        shown = {"text": text[:MAX_SHOWN_CHARACTERS] + "…"}
    return json.loads(json.dumps(shown, default=str))

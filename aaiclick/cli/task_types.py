"""`aaiclick types`: settings of task types."""

from __future__ import annotations

import json

import click

from aaiclick.api.workers import RetryPolicyRequest, TaskType
from aaiclick.cli.api_keys import every_org_option, org_option
from aaiclick.cli.database import format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_models
from aaiclick.cli.param_types import Number
from aaiclick.orchestration.retry_policy import DEFAULT, RetryPolicy


@click.group()
def types() -> None:
    """Show, pause and resume task types; set their retry policy.

    \b
    aaiclick types ls
    aaiclick types pause send_mail
    """


@types.command("ls")
@every_org_option
@output_option
def list_task_types(org: str | None, output: str) -> None:
    """List task types with settings."""
    with open_operations(org) as operations:
        listed = operations.list_types()
    print_models(listed, output, _table_row, empty_message="No task types with settings found.")


@types.command("retry")
@click.argument("name")
@click.option("--base-seconds", type=Number(0), help="Delay after the first failure; doubles with each failure.")
@click.option("--cap-seconds", type=Number(0), help="Maximum delay.")
@click.option("--default", "reset", is_flag=True, help="Reset to the default policy.")
@org_option
def set_retry_policy(name: str, base_seconds: float | None, cap_seconds: float | None, reset: bool, org: str) -> None:
    """Set the retry delay of a task type."""
    if reset == (base_seconds is not None or cap_seconds is not None):
        raise click.UsageError("Give --base-seconds, --cap-seconds or both; or --default alone.")
    options = {"base_seconds": base_seconds, "cap_seconds": cap_seconds}
    policy = RetryPolicy.from_json(json.dumps({key: value for key, value in options.items() if value is not None}))
    body = RetryPolicyRequest(retry_policy=None if reset else json.loads(policy.to_json()))
    with open_operations(org) as operations:
        operations.set_type_retry_policy(name, body)
    print_message(f"Tasks of type {name!r} are retried {_describe_policy(DEFAULT if reset else policy)}.")


@types.command("pause")
@click.argument("name")
@org_option
def pause_type(name: str, org: str) -> None:
    """Pause a task type: no further tasks start."""
    with open_operations(org) as operations:
        operations.pause_type(name)
    print_message(f"Type {name!r} paused. Resume it with: aaiclick types resume {name}")


@types.command("resume")
@click.argument("name")
@org_option
def resume_type(name: str, org: str) -> None:
    """Resume a paused task type."""
    with open_operations(org) as operations:
        operations.resume_type(name)
    print_message(f"Type {name!r} resumed.")


def _table_row(task_type: TaskType) -> Row:
    policy = task_type.retry_policy
    retry_text = "" if policy is None else _describe_policy(RetryPolicy(**policy.model_dump()))
    return {
        "org": task_type.org,
        "type": task_type.name,
        "retry": retry_text,
        "paused": format_time(task_type.paused_at),
    }


def _describe_policy(policy: RetryPolicy) -> str:
    return f"after {policy.delay_seconds(1, jitter=0):g} s, doubling up to {policy.cap_seconds:g} s"

"""Options of a task, and the number of files that name one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy.dialects.postgresql import dialect

import aaiclick
from aaiclick.api.tasks import TaskOptionFields
from aaiclick.errors import SubmitError
from aaiclick.orchestration import create_task, task
from aaiclick.store.models import metadata
from aaiclick.store.statements import load_columns
from aaiclick.store.task_options import DEFAULT_OPTIONS, OPTION_COLUMNS, TaskKeywords, TaskOptions

PACKAGE = Path(aaiclick.__file__).parent
FILES = {
    "store/task_options.py",  # the keyword, the field and its check
    "store/sql/columns.sql",  # the column list of all inserts and copies
    "store/models/tasks.py",
    "store/migrations/versions/0001_initial.sql",
    "api/tasks.py",  # the field of all requests
    "store/sql/promotion.sql",  # admits as many tasks of a key
    "store/sql/explain_task.sql",  # names the limit to a user
    "store/catalog/dataset_events.py",  # sets it from a DAG file
}
USERS = {"store/engine/notification_deliveries.py"}
"""Files that set the option of tasks of their own."""

EVERYTHING = TaskOptions(
    3, "q", 2, 1.5, None, '{"base_seconds":2.0,"cap_seconds":9.0}', datetime(2026, 1, 1, tzinfo=UTC), "k", 4, False,
    "any", True,
)  # fmt: skip


@task(retries=5, queue="slow")
def load() -> None: ...


def test_an_option_is_named_in_at_most_eight_files() -> None:
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".sql", ".html", ".json"}]
    naming = {str(path.relative_to(PACKAGE)) for path in files if "concurrency_limit" in path.read_text()} - USERS
    assert naming == FILES
    assert len(naming) <= 8


def test_columns_equal_the_fields_and_the_types_of_the_table() -> None:
    columns = load_columns()["task_options"]
    assert tuple(columns) == OPTION_COLUMNS
    synonyms = {"float8": "double precision", "timestamptz": "timestamp with time zone"}
    table = metadata.tables["tasks"].columns
    types = {name: table[name].type.compile(dialect()).lower() for name in columns}
    assert types == {name: synonyms.get(column_type, column_type) for name, column_type in columns.items()}


def test_request_fields_are_the_keywords_with_the_same_defaults() -> None:
    assert set(TaskOptionFields.model_fields) == set(TaskKeywords.__annotations__) - {"retries"}
    assert TaskOptionFields().to_options() == DEFAULT_OPTIONS


def test_options_survive_json() -> None:
    assert TaskOptionFields.model_validate(EVERYTHING.to_json()).to_options().values() == EVERYTHING.values()
    assert DEFAULT_OPTIONS.to_json() == {}


def test_options_of_a_call_change_only_those_named() -> None:
    options = load.options(priority=10).task().options
    assert options == TaskOptions(6, "slow", priority=10)
    assert load.task().options is load.task().options


def test_unknown_option_raises_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        create_task("m.f", colour="red")  # pyright: ignore[reportCallIssue]


def test_retries_and_max_attempts_exclude_each_other() -> None:
    with pytest.raises(SubmitError, match="retries and max_attempts"):
        create_task("m.f", retries=1, max_attempts=2)

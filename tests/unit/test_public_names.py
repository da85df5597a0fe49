"""The public surface changes on purpose or not at all."""

import importlib

import pytest

PUBLIC = {
    "aaiclick": ["__version__"],
    "aaiclick.catalog": ["dataset", "sql_dataset"],
    "aaiclick.client": ["AsyncClient", "AsyncJobHandle", "Client", "JobHandle"],
    "aaiclick.local": [
        "clickhouse_endpoint",
        "close_stack_connections",
        "find_both",
        "find_clickhouse",
        "find_postgres",
        "postgres_endpoint",
        "stack_status",
        "stop_stack",
    ],
    "aaiclick.operators": ["CHUNK_ROWS", "Handle", "foreach", "map", "reduce"],
    "aaiclick.orchestration": [
        "Branch",
        "Context",
        "Decision",
        "Dependency",
        "Group",
        "Health",
        "Job",
        "JobStatus",
        "NominalDate",
        "NominalTime",
        "OrchContext",
        "PermanentError",
        "RetryPolicy",
        "Task",
        "TaskFailure",
        "TaskStatus",
        "Worker",
        "WorkerStatus",
        "add_task_to_job",
        "approval",
        "cancel_job",
        "create_job",
        "create_task",
        "deregister_worker",
        "emit_event",
        "enqueue",
        "enqueue_many",
        "get_current_context",
        "get_job",
        "get_orch_context_session",
        "get_secret",
        "get_task",
        "handler",
        "health_check",
        "job",
        "list_jobs",
        "list_workers",
        "register_worker",
        "retry_failed_tasks",
        "run_job_test",
        "schedule",
        "schedule_item",
        "send_event",
        "sensor",
        "set_retry_policy",
        "sleep",
        "task",
        "unschedule",
        "until",
        "wait_for_event",
        "wait_for_job",
        "worker_heartbeat",
    ],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_the_agreed_ones(module):
    assert sorted(importlib.import_module(module).__all__) == sorted(PUBLIC[module])


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist_and_are_documented(module):
    loaded = importlib.import_module(module)
    for name in PUBLIC[module]:
        value = getattr(loaded, name)
        assert name.startswith("__") or value.__doc__, f"{module}.{name} has no docstring"

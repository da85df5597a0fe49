"""Triggers and functions, as part of the metadata: `create_all` creates the same schema as the migrations."""

from __future__ import annotations

from sqlalchemy import DDL, event

from aaiclick.store.enums import BUCKETS, DEFAULT_ORG_ID, DEFAULT_ORG_SLUG
from aaiclick.store.models.base import metadata

TOUCHED_TABLES = (
    "jobs", "tasks", "queues", "task_types", "job_definitions", "dag_current_versions", "datasets", "operator_state",
)  # fmt: skip
"""Tables with an `updated_at` that a trigger sets; that of `table_refcounts` is set by statements."""

_TOUCH = """
CREATE OR REPLACE FUNCTION aaiclick_touch() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$
"""

# WHEN is evaluated without entering plpgsql: statements that set updated_at themselves cost almost nothing.
_TOUCH_TRIGGER = """
CREATE TRIGGER touch BEFORE UPDATE ON {table} FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch()
"""

_DELETE_DEPENDENCIES = """
CREATE OR REPLACE FUNCTION aaiclick_delete_dependencies() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    DELETE FROM dependencies WHERE previous_id IN (SELECT id FROM gone);
    DELETE FROM dependencies WHERE next_id IN (SELECT id FROM gone);
    RETURN NULL;
END $$
"""

# Once per statement: deleting a job of a million tasks is one pass over its dependencies.
_DELETE_DEPENDENCIES_TRIGGER = """
CREATE TRIGGER delete_dependencies AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_delete_dependencies()
"""

# `refcount` is the sum of the references, whatever adds or deletes them, also the deletion of a job. Rows are locked in
# the order of names: concurrent releases of the same tables do not deadlock. SECURITY DEFINER: the API role may delete
# references, but not read the sums, which belong to no org.
_COUNT_REFERENCES = """
CREATE OR REPLACE FUNCTION aaiclick_count_references() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ DECLARE names text[]; changes bigint[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(name ORDER BY name), array_agg(change ORDER BY name) INTO names, changes
        FROM (SELECT table_name AS name, sum(refs) AS change FROM added GROUP BY table_name) AS c;
    ELSIF TG_OP = 'DELETE' THEN
        SELECT array_agg(name ORDER BY name), array_agg(change ORDER BY name) INTO names, changes
        FROM (SELECT table_name AS name, -sum(refs) AS change FROM gone GROUP BY table_name) AS c;
    ELSE
        SELECT array_agg(name ORDER BY name), array_agg(change ORDER BY name) INTO names, changes FROM (
            SELECT table_name AS name, sum(refs) AS change FROM (
                SELECT table_name, refs FROM added UNION ALL SELECT table_name, -refs FROM gone) AS u
            GROUP BY table_name HAVING sum(refs) <> 0) AS c;
    END IF;
    PERFORM FROM table_refcounts WHERE table_name = ANY (names) ORDER BY table_name FOR NO KEY UPDATE;
    UPDATE table_refcounts t SET refcount = t.refcount + c.change, updated_at = now()
    FROM unnest(names, changes) AS c (name, change) WHERE t.table_name = c.name;
    RETURN NULL;
END $$
"""

_COUNT_REFERENCES_TRIGGERS = (
    """
CREATE TRIGGER count_added AFTER INSERT ON table_references REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_count_references()
""",
    """
CREATE TRIGGER count_gone AFTER DELETE ON table_references REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_count_references()
""",
    """
CREATE TRIGGER count_changed AFTER UPDATE ON table_references REFERENCING NEW TABLE AS added OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_count_references()
""",
)

_BUCKET = f"""
CREATE OR REPLACE FUNCTION aaiclick_bucket(seconds float8) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT width_bucket(seconds, '{{{",".join(f"{bound:g}" for bound in BUCKETS)}}}'::float8[]) $$
"""

# Metric counters only rise: rows that are deleted or restarted are counted here. All of these statements are rare.
_ADD_METRIC_COUNTS = """
CREATE OR REPLACE FUNCTION aaiclick_add_metric_counts() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ BEGIN
    IF TG_TABLE_NAME = 'task_attempts' THEN
        INSERT INTO metric_counts (kind, status, bucket, count, seconds)
        SELECT 'attempt', outcome, -1, count(*), 0 FROM gone GROUP BY outcome;
    ELSIF TG_TABLE_NAME = 'jobs' THEN
        INSERT INTO metric_counts (kind, status, bucket, count, seconds)
        SELECT 'job', status, coalesce(aaiclick_bucket(took), -1), count(*), coalesce(sum(took), 0) FROM (
            SELECT status, CASE WHEN status = 'COMPLETED'
                THEN extract(epoch FROM completed_at - greatest(started_at, restarted_at))::float8 END AS took
            FROM gone) AS g GROUP BY 2, 3;
    ELSE
        INSERT INTO metric_counts (kind, status, worker_id, bucket, count, seconds)
        SELECT 'task', status, worker_id, coalesce(aaiclick_bucket(took), -1), count(*), coalesce(sum(took), 0) FROM (
            SELECT CASE WHEN completed_at IS NULL THEN 'OPEN' ELSE status::text END AS status, worker_id,
                CASE WHEN status = 'COMPLETED' THEN extract(epoch FROM completed_at - started_at)::float8 END AS took
            FROM gone) AS g GROUP BY 2, 3, 4;
    END IF;
    RETURN NULL;
END $$
"""

_ADD_METRIC_COUNTS_TRIGGER = """
CREATE TRIGGER add_metric_counts AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_add_metric_counts()
"""

_ADD_REOPENED_COUNTS = """
CREATE OR REPLACE FUNCTION aaiclick_add_reopened_counts() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ DECLARE took float8; worker bigint;
BEGIN
    IF TG_TABLE_NAME = 'jobs' THEN
        took := extract(epoch FROM OLD.completed_at - greatest(OLD.started_at, OLD.restarted_at));
    ELSE
        took := extract(epoch FROM OLD.completed_at - OLD.started_at);
        worker := OLD.worker_id;
    END IF;
    IF OLD.status::text <> 'COMPLETED' THEN took := NULL; END IF;
    INSERT INTO metric_counts (kind, status, worker_id, bucket, count, seconds)
    VALUES (TG_ARGV[0], OLD.status, worker, coalesce(aaiclick_bucket(took), -1), 1, coalesce(took, 0));
    RETURN NULL;
END $$
"""

_ADD_REOPENED_COUNTS_TRIGGER = """
CREATE TRIGGER add_reopened_counts AFTER UPDATE ON {table} FOR EACH ROW
WHEN (OLD.completed_at IS NOT NULL AND NEW.completed_at IS NULL) EXECUTE FUNCTION aaiclick_add_reopened_counts('{kind}')
"""

# The status of a source depends on its tasks: on the given one, else on its newest; a leased one takes precedence. The
# function never waits for a lock: a locked definition is left to the scheduler (`update_source_status`). It returns
# whether the source became Dead.
_SOURCE_STATUS = """
CREATE OR REPLACE FUNCTION aaiclick_set_source_status(source_id uuid, task_id bigint, clock timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS
$$ DECLARE d record; t record; other record; wanted boolean; state definition_status;
BEGIN
    SELECT f.org_id, f.dag_version_id, f.status, f.last_heartbeat, f.source ->> 'kind' AS kind INTO d
    FROM job_definitions f WHERE f.id = source_id AND f.activation = 'source';
    IF NOT FOUND THEN RETURN false; END IF;
    wanted := EXISTS (
        SELECT FROM dag_current_versions c WHERE c.dag_version_id = d.dag_version_id AND c.paused_at IS NULL);
    SELECT k.status, k.lease_token, k.lease_expires_at, k.last_heartbeat, k.completed_at, k.failures INTO t FROM tasks k
    WHERE k.id = coalesce(task_id, (
        SELECT n.id FROM tasks n WHERE n.definition_id = source_id ORDER BY n.definition_id, n.id DESC LIMIT 1));
    IF t.lease_token IS NULL AND d.status <> 'Pending' THEN
        SELECT k.status, k.lease_token, k.lease_expires_at, k.last_heartbeat, k.completed_at, k.failures INTO other
        FROM jobs j CROSS JOIN LATERAL (
            SELECT * FROM tasks o WHERE o.job_id = j.id AND o.definition_id IS NOT DISTINCT FROM source_id
              AND o.lease_token IS NOT NULL LIMIT 1) AS k
        WHERE j.org_id = d.org_id AND j.completed_at IS NULL AND j.definition_id IS NOT DISTINCT FROM source_id LIMIT 1;
        IF FOUND THEN t := other; END IF;
    END IF;
    state := CASE
        WHEN t.lease_token IS NOT NULL AND NOT wanted THEN 'Draining'
        WHEN t.lease_token IS NOT NULL AND t.lease_expires_at > clock THEN 'Running'
        WHEN t.lease_token IS NOT NULL THEN 'Dead'
        WHEN wanted AND t.status IS NOT NULL AND t.completed_at IS NULL AND t.failures > 0 THEN 'Dead'
        WHEN wanted AND t.status IN ('FAILED', 'DEAD_LETTER') AND d.kind = 'always_on' THEN 'Dead'
        ELSE 'Pending' END;
    IF state = d.status AND coalesce(t.last_heartbeat, d.last_heartbeat) IS NOT DISTINCT FROM d.last_heartbeat THEN
        RETURN false;
    END IF;
    PERFORM FROM job_definitions f WHERE f.id = source_id FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE job_definitions f SET status = state, last_heartbeat = coalesce(t.last_heartbeat, f.last_heartbeat),
        updated_at = now() WHERE f.id = source_id;
    RETURN state = 'Dead' AND d.status <> 'Dead';
END $$
"""

_UPDATE_SOURCE_STATUS = """
CREATE OR REPLACE FUNCTION aaiclick_update_source_status() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM aaiclick_set_source_status(NEW.definition_id, NEW.id, now()); RETURN NULL; END $$
"""

# Tasks of sources are those of a definition that have no dedupe key. WHEN keeps all others out of plpgsql.
_UPDATE_SOURCE_STATUS_TRIGGER = """
CREATE TRIGGER source_status AFTER UPDATE ON tasks FOR EACH ROW
WHEN (NEW.definition_id IS NOT NULL AND NEW.dedupe_key IS NULL AND OLD.status IS DISTINCT FROM NEW.status)
EXECUTE FUNCTION aaiclick_update_source_status()
"""

# The final results of a job, for tasks that wait for its end.
_JOB_OUTCOME = """
CREATE OR REPLACE FUNCTION aaiclick_job_outcome(ended_id bigint) RETURNS jsonb LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ SELECT jsonb_build_object('job', jsonb_build_object('id', j.id::text, 'name', j.name, 'status', j.status,
    'error', j.error, 'results', coalesce((SELECT jsonb_agg(r.result ORDER BY r.id) FROM (
        SELECT t.id, t.result FROM tasks t
        WHERE t.job_id = j.id AND t.status = 'COMPLETED' AND t.added_by IS NULL AND t.result IS NOT NULL
          AND (t.trigger_rule IN ('failed', 'ended')) IS NOT TRUE
          AND NOT EXISTS (SELECT FROM dependencies d WHERE d.previous_id = t.id AND d.next_type < 'handler')
        ORDER BY t.id LIMIT 100) AS r), '[]')))
FROM jobs j WHERE j.id = ended_id $$
"""

_WAKE_JOB_WAITS = """
CREATE OR REPLACE FUNCTION aaiclick_wake_job_waits() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ DECLARE outcome jsonb := aaiclick_job_outcome(NEW.id); woken record;
BEGIN
    FOR woken IN DELETE FROM waits WHERE job_id = NEW.id RETURNING task_id, attempt LOOP
        UPDATE tasks SET readiness = 'READY', updated_at = now(),
            kwargs = jsonb_set(kwargs, '{aaiclick_wait}', (kwargs -> 'aaiclick_wait') || outcome)
        WHERE id = woken.task_id AND attempt = woken.attempt AND readiness::text = 'TIME';
        PERFORM pg_notify('aaiclick_ready', queue) FROM tasks WHERE id = woken.task_id;
    END LOOP;
    RETURN NULL;
END $$
"""

# Few jobs are awaited: WHEN keeps all others out of plpgsql.
_WAKE_JOB_WAITS_TRIGGER = """
CREATE TRIGGER wake_job_waits AFTER UPDATE ON jobs FOR EACH ROW
WHEN (NEW.has_waiters AND OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL)
EXECUTE FUNCTION aaiclick_wake_job_waits()
"""

_DEFAULT_ORG = f"""
INSERT INTO orgs (id, name, slug) VALUES ('{DEFAULT_ORG_ID}', 'Default', '{DEFAULT_ORG_SLUG}')
"""  # noqa: S608


def _statements() -> list[str]:
    touch = [_TOUCH_TRIGGER.format(table=table) for table in TOUCHED_TABLES]
    dependencies = [_DELETE_DEPENDENCIES_TRIGGER.format(table=table) for table in ("tasks", "groups")]
    deleted = [_ADD_METRIC_COUNTS_TRIGGER.format(table=table) for table in ("jobs", "tasks", "task_attempts")]
    reopened = [
        _ADD_REOPENED_COUNTS_TRIGGER.format(table=f"{name}s", kind=f"{name}_reopened") for name in ("job", "task")
    ]
    counts = [_BUCKET, _ADD_METRIC_COUNTS, *deleted, _ADD_REOPENED_COUNTS, *reopened]
    sources = [_SOURCE_STATUS, _UPDATE_SOURCE_STATUS, _UPDATE_SOURCE_STATUS_TRIGGER]
    return [
        _TOUCH,
        *touch,
        _DELETE_DEPENDENCIES,
        *dependencies,
        _COUNT_REFERENCES,
        *_COUNT_REFERENCES_TRIGGERS,
        *counts,
        *sources,
        _JOB_OUTCOME,
        _WAKE_JOB_WAITS,
        _WAKE_JOB_WAITS_TRIGGER,
        _DEFAULT_ORG,
    ]


def attach_triggers() -> None:
    """Make `metadata.create_all` create these after the tables."""
    for statement in _statements():
        event.listen(metadata, "after_create", DDL(statement.replace("%", "%%")))


attach_triggers()

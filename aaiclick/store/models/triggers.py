"""Triggers and functions, as part of the metadata: `create_all` creates the same schema as the migrations."""

from __future__ import annotations

from sqlalchemy import DDL, event

from aaiclick.store.enums import BUCKETS, DEFAULT_ORG_ID, DEFAULT_ORG_SLUG
from aaiclick.store.models.base import metadata

TOUCHED_TABLES = (
    "jobs", "queues", "task_types", "job_definitions", "dag_current_versions", "datasets", "operator_state",
)  # fmt: skip
"""Tables with an `updated_at` that a trigger sets; those of `tasks` and `table_refcounts` are set by statements.

A BEFORE trigger locks each row before it is updated, which writes a record to the WAL, also if its WHEN is false.
"""

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

# `tasks.log_path` in a query: a path on each row would be a tenth of the WAL of a task. SECURITY DEFINER: the API role
# may not read workers of other orgs, which run the tasks of all.
_LOG_PATH = """
CREATE OR REPLACE FUNCTION log_path(task tasks) RETURNS text LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ SELECT w.log_directory || '/' || task.id || '.log' FROM workers w WHERE w.id = task.worker_id $$
"""

# Completes tasks that only tasks depend on, in one call: each statement of the function has a snapshot of its own,
# younger than the graph locks of the first. Left to the caller are completions that concern groups, handlers,
# concurrency keys or tasks that returned tasks: those take more statements or the exclusive lock.
_COMPLETE_LINKED_TASKS = """
CREATE OR REPLACE FUNCTION aaiclick_complete_linked_tasks(task_ids bigint[], attempts int[], tokens uuid[],
    results jsonb[], durations float8[], literals text[], clock timestamptz, OUT completed bigint[], OUT ready text[])
LANGUAGE plpgsql AS
$$ DECLARE eligible bigint[];
BEGIN
    clock := coalesce(clock, now());
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT array_agg(j.job_id ORDER BY j.job_id) INTO eligible FROM (
        SELECT t.job_id FROM unnest(task_ids) AS g (id) CROSS JOIN LATERAL (
            SELECT k.id, k.job_id, k.group_id, k.concurrency_key, k.added_by FROM tasks k
            WHERE k.id = g.id OFFSET 0) AS t
        WHERE t.job_id IS NOT NULL
        GROUP BY t.job_id HAVING bool_and(num_nonnulls(t.group_id, t.concurrency_key, t.added_by) < 1 AND coalesce((
            SELECT false FROM dependencies d WHERE d.previous_id = t.id AND d.next_type > 'task' LIMIT 1), true))) AS j;
    IF eligible IS NULL THEN RETURN; END IF;
    PERFORM pg_advisory_xact_lock_shared(j.id) FROM unnest(eligible) AS j (id);
    WITH done AS (
        UPDATE tasks t SET status = 'COMPLETED', completed_at = clock, lease_token = NULL, result = g.result,
            literal = g.literal, error = NULL, error_fingerprint = NULL, updated_at = clock,
            started_at = CASE WHEN g.seconds IS NULL THEN t.started_at
                ELSE greatest(t.claimed_at, clock - g.seconds * interval '1 second') END
        FROM unnest(task_ids, attempts, tokens, results, durations, literals)
            AS g (id, attempt, token, result, seconds, literal)
        WHERE t.id = ANY (task_ids) AND t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
          AND t.job_id = ANY (eligible) AND NOT t.passed_over
          AND num_nonnulls(t.group_id, t.concurrency_key, t.added_by, t.cancel_requested_at) < 1
          AND coalesce((SELECT false FROM task_additions a WHERE a.task_id = t.id LIMIT 1), true)
          AND coalesce((SELECT false FROM dependencies d LEFT JOIN LATERAL (
                SELECT k.concurrency_key, k.readiness, k.result FROM tasks k
                WHERE k.id = d.next_id OFFSET 0) AS n ON true
            WHERE d.previous_id = t.id AND (d.next_type > 'task' OR n.concurrency_key IS NOT NULL
                OR (n.readiness = 'BLOCKED' AND n.result IS NOT NULL)) LIMIT 1), true)
        RETURNING t.id, t.job_id
    )
    SELECT array_agg(id), array_agg(job_id) INTO completed, eligible FROM done;
    IF completed IS NULL THEN RETURN; END IF;
    WITH met AS MATERIALIZED (
        SELECT d.next_id AS id, count(*)::int AS met FROM dependencies d
        WHERE d.previous_id = ANY (completed) AND d.next_type = 'task' GROUP BY d.next_id
    ),
    locked AS MATERIALIZED (
        SELECT t.id, coalesce((SELECT g.unmet FROM groups g WHERE g.id = t.group_id), 0) = 0 AS group_open
        FROM tasks t WHERE t.id = ANY (ARRAY(SELECT id FROM met)) ORDER BY t.id FOR NO KEY UPDATE OF t
    ),
    advanced AS (
        UPDATE tasks t SET unmet = t.unmet - m.met, updated_at = clock, readiness = CASE
            WHEN t.readiness IS DISTINCT FROM 'BLOCKED' OR t.unmet > m.met OR NOT l.group_open THEN t.readiness
            WHEN t.available_at > clock THEN 'TIME' ELSE 'READY' END
        FROM met m JOIN locked l ON l.id = m.id WHERE t.id = ANY (ARRAY(SELECT id FROM locked)) AND t.id = m.id
        RETURNING t.queue, t.readiness
    )
    SELECT array_agg(DISTINCT queue) INTO ready FROM advanced WHERE readiness = 'READY';
    WITH tally AS MATERIALIZED (SELECT id, count(*)::int AS tasks FROM unnest(eligible) AS j (id) GROUP BY id),
    locked AS MATERIALIZED (
        SELECT id FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM tally)) ORDER BY id FOR NO KEY UPDATE
    )
    UPDATE jobs j SET open_tasks = j.open_tasks - n.tasks, started_at = coalesce(j.started_at, now()),
        status = CASE
            WHEN j.open_tasks > n.tasks OR j.open_events > 0 THEN 'RUNNING'
            WHEN j.failed_tasks > 0 OR j.error IS NOT NULL THEN 'FAILED'
            WHEN j.cancelled_tasks > 0 THEN 'CANCELLED'
            ELSE 'COMPLETED' END::job_status,
        completed_at = CASE WHEN j.open_tasks = n.tasks AND j.open_events = 0 THEN clock END, updated_at = clock
    FROM tally n WHERE j.id = n.id AND j.id = ANY (ARRAY(SELECT id FROM locked));
END $$
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

# The job that a limited job waits for: that of its turn, or an earlier one, if that one has ended without its turn.
# Of the turns of a job, at most one names a job (see `settle_turns`). Arguments are text of the submitters of tasks: a
# cast that fails would fail the end of the job, and what else is stored with it.
_FIND_AWAITED_TURN = """
CREATE OR REPLACE FUNCTION aaiclick_find_awaited_turn(awaited bigint) RETURNS bigint LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ WITH RECURSIVE earlier (id, ended, org_id) AS (
        SELECT j.id, j.completed_at IS NOT NULL, j.org_id FROM jobs j WHERE j.id = awaited
        UNION
        SELECT j.id, j.completed_at IS NOT NULL, j.org_id FROM earlier e
        JOIN tasks t ON t.job_id = e.id AND t.type = 'wait_for_turn' AND t.status <> 'COMPLETED'
        JOIN jobs j ON j.org_id = e.org_id AND j.id = CASE
            WHEN t.kwargs ->> 'job_id' ~ '^([0-9]{1,18}|[1-8][0-9]{18})$' THEN (t.kwargs ->> 'job_id')::bigint END
        WHERE e.ended
    )
    SELECT id FROM earlier WHERE NOT ended LIMIT 1 $$
"""

# A task with a concurrency key becomes due: the promoter gives it a slot. Turns after a limited job that has ended
# without its own wait for the one that it waited for.
_WAKE_JOB_WAITS = """
CREATE OR REPLACE FUNCTION aaiclick_wake_job_waits() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ DECLARE outcome jsonb := aaiclick_job_outcome(NEW.id); woken record; next_id bigint;
BEGIN
    WHILE NEW.concurrency IS NOT NULL LOOP
        next_id := aaiclick_find_awaited_turn(NEW.id);
        EXIT WHEN next_id IS NULL;
        UPDATE jobs SET has_waiters = true WHERE id = next_id AND completed_at IS NULL;
        CONTINUE WHEN NOT FOUND;
        UPDATE waits w SET job_id = next_id FROM tasks t
        WHERE w.job_id = NEW.id AND t.id = w.task_id AND t.type = 'wait_for_turn' AND t.job_id <> next_id;
        EXIT;
    END LOOP;
    FOR woken IN DELETE FROM waits WHERE job_id = NEW.id RETURNING task_id, attempt LOOP
        UPDATE tasks SET updated_at = now(),
            readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'TIME' END::task_readiness,
            available_at = CASE WHEN concurrency_key IS NULL THEN available_at ELSE now() END,
            kwargs = jsonb_set(kwargs, '{aaiclick_wait}', (kwargs -> 'aaiclick_wait') || outcome)
        WHERE id = woken.task_id AND attempt = woken.attempt AND readiness::text = 'TIME' AND kwargs ? 'aaiclick_wait';
        PERFORM pg_notify('aaiclick_ready', queue) FROM tasks WHERE id = woken.task_id;
    END LOOP;
    RETURN NULL;
END $$
"""

# Charges a rate key with up to `asked` claims and locks it until the commit. The claims of the last period are counted
# by its fiftieths, in order: a claim counts until the end of its part is a period ago, so no period has more than
# `most` claims. NULL: not all of them may be claimed and `whole` is set, or the last claim has a later clock, and
# parts that count for this one may be deleted. Parts in the future do not count: the clock was set back since. Parts
# of a longer period, before the rate was changed, end with the current one: their claims are not later than that.
# `free_at` is when some of the others may be claimed.
_CHARGE_RATE = """
CREATE OR REPLACE FUNCTION aaiclick_charge_rate(org uuid, rate_key text, rate text, asked int, whole boolean,
    clock timestamptz, OUT granted int, OUT free_at timestamptz)
LANGUAGE plpgsql AS
$$ DECLARE
    most int := split_part(rate, '/', 1);
    period float8 := split_part(rate, '/', 2);
    part timestamptz := to_timestamp((floor(extract(epoch FROM clock)::float8 * 50 / period) + 1) * period / 50);
    r rate_limits; first int := 1; last int; used bigint := 0;
BEGIN
    LOOP
        SELECT * INTO r FROM rate_limits l WHERE l.org_id = org AND l.key = rate_key FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO rate_limits (org_id, key, allowed, seconds, charged_at, ends, counts)
        VALUES (org, rate_key, most, period, clock, '{}', '{}') ON CONFLICT DO NOTHING;
    END LOOP;
    IF r.charged_at > clock + interval '10 seconds' THEN r.ends := '{}'; r.counts := '{}';
    ELSIF r.charged_at > clock THEN RETURN; END IF;
    last := cardinality(r.ends);
    FOR n IN REVERSE last .. 1 LOOP EXIT WHEN r.ends[n] <= part; r.ends[n] := part; END LOOP;
    WHILE first <= last AND r.ends[first] <= clock - period * interval '1 second' LOOP first := first + 1; END LOOP;
    FOR n IN first .. last LOOP used := used + r.counts[n]; END LOOP;
    granted := least(asked, greatest(0, most - used));
    IF whole AND granted < asked THEN granted := NULL; RETURN; END IF;
    IF granted > 0 AND last >= first AND r.ends[last] = part THEN r.counts[last] := r.counts[last] + granted;
    ELSIF granted > 0 THEN r.ends := r.ends || part; r.counts := r.counts || granted; END IF;
    IF asked > granted THEN free_at := r.ends[first] + period * interval '1 second'; END IF;
    UPDATE rate_limits l SET allowed = most, seconds = period, charged_at = clock,
        next_at = coalesce(free_at, r.next_at), ends = r.ends[first:], counts = r.counts[first:]
    WHERE l.org_id = org AND l.key = rate_key;
END $$
"""

# Whether a worker that serves the queues (empty: all) may claim tasks of a queue `runtime:version:VERSION:QUEUE`: only
# workers with that version of the code run them.
_SERVES_VERSION = """
CREATE OR REPLACE FUNCTION aaiclick_serves_version(worker bigint, queue text, queues text[]) RETURNS boolean
LANGUAGE sql STABLE AS
$$ SELECT EXISTS (SELECT FROM workers w
        WHERE w.id = worker AND replace(w.code_version, ':', '_') = split_part(queue, ':', 3))
    AND (queues = '{}' OR substr(queue, length(split_part(queue, ':', 3)) + 18) = ANY (queues)) $$
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
        _FIND_AWAITED_TURN,
        _WAKE_JOB_WAITS,
        _WAKE_JOB_WAITS_TRIGGER,
        _LOG_PATH,
        _COMPLETE_LINKED_TASKS,
        _CHARGE_RATE,
        _SERVES_VERSION,
        _DEFAULT_ORG,
    ]


def attach_triggers() -> None:
    """Make `metadata.create_all` create these after the tables."""
    for statement in _statements():
        event.listen(metadata, "after_create", DDL(statement.replace("%", "%%")))


attach_triggers()

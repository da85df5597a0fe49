"""What PostgreSQL does by itself, as part of the metadata: `create_all` makes the same schema as the migrations."""

from __future__ import annotations

from sqlalchemy import DDL, event

from aaiclick.store.models.base import metadata
from aaiclick.store.words import DEFAULT_ORG_ID, DEFAULT_ORG_SLUG

TOUCHED = (
    "jobs", "tasks", "queues", "task_types", "job_definitions", "dag_current_versions", "datasets", "operator_state",
)  # fmt: skip
"""Tables whose `updated_at` is kept by a trigger; `table_refcounts` is written by statements that set it."""

_TOUCH = """
CREATE OR REPLACE FUNCTION aaiclick_touch() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$
"""

# WHEN is evaluated without entering plpgsql: a statement that sets updated_at itself pays next to nothing.
_TOUCH_TRIGGER = """
CREATE TRIGGER touch BEFORE UPDATE ON {table} FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch()
"""

_FORGET = """
CREATE OR REPLACE FUNCTION aaiclick_forget_dependencies() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    DELETE FROM dependencies WHERE previous_id IN (SELECT id FROM gone);
    DELETE FROM dependencies WHERE next_id IN (SELECT id FROM gone);
    RETURN NULL;
END $$
"""

# Once per statement: deleting a job of a million tasks is one pass over its dependencies.
_FORGET_TRIGGER = """
CREATE TRIGGER forget_dependencies AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_forget_dependencies()
"""

# `refcount` is the sum of the references whatever adds or removes them, also a job that is deleted with all it had.
# Rows are locked in the order of their names: two that release the same tables wait for each other, never both.
# It counts as the owner: whoever may drop a reference need not see the sums, which belong to no org.
_COUNT = """
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

_COUNT_TRIGGERS = (
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

_DEFAULT_ORG = f"""
INSERT INTO orgs (id, name, slug) VALUES ('{DEFAULT_ORG_ID}', 'Default', '{DEFAULT_ORG_SLUG}')
"""  # noqa: S608


def _statements() -> list[str]:
    touch = [_TOUCH_TRIGGER.format(table=table) for table in TOUCHED]
    forget = [_FORGET_TRIGGER.format(table=table) for table in ("tasks", "groups")]
    return [_TOUCH, *touch, _FORGET, *forget, _COUNT, *_COUNT_TRIGGERS, _DEFAULT_ORG]


def attach() -> None:
    """Have `metadata.create_all` run these after the tables."""
    for statement in _statements():
        event.listen(metadata, "after_create", DDL(statement.replace("%", "%%")))


attach()

-- name: reserve_tables
-- Register tables that attempts with a valid lease are about to create, each referenced by its attempt. FOR SHARE: the
-- end of the attempt is serialised before this (no reference) or after it (which releases it). A name that another org
-- has registered is not referenced.
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::uuid[]) AS g (name, id, attempt, token)
),
live AS MATERIALIZED (
    SELECT g.name, g.id, g.attempt, t.org_id, NOT EXISTS (
        SELECT FROM table_refcounts r WHERE r.table_name = g.name AND r.org_id <> t.org_id) AS held
    FROM given g CROSS JOIN LATERAL (
        SELECT t.org_id FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token FOR SHARE) t
),
known AS (
    INSERT INTO table_refcounts (table_name, org_id) SELECT DISTINCT name, org_id FROM live WHERE held ORDER BY name
    ON CONFLICT DO NOTHING
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, attempt)
    SELECT DISTINCT name, 'ATTEMPT'::reference_owner, id, attempt FROM live WHERE held ORDER BY name
    ON CONFLICT DO NOTHING
)
SELECT name, id, held FROM live

-- name: hold_tables
-- Reference tables by attempts that read them. A table that is not registered or is being dropped is not referenced;
-- the row lock serialises this with `mark_tables_dropping`. Tables of other orgs do not exist.
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::uuid[]) AS g (name, id, attempt, token)
),
live AS MATERIALIZED (
    SELECT g.name, g.id, g.attempt, t.org_id FROM given g CROSS JOIN LATERAL (
        SELECT t.org_id FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token FOR SHARE) t
),
there AS MATERIALIZED (
    SELECT table_name, org_id FROM table_refcounts WHERE table_name = ANY (ARRAY(SELECT name FROM live))
      AND dropping_at IS NULL ORDER BY table_name FOR NO KEY UPDATE
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, attempt)
    SELECT DISTINCT l.name, 'ATTEMPT'::reference_owner, l.id, l.attempt FROM live l
    WHERE (l.name, l.org_id) IN (SELECT table_name, org_id FROM there) ON CONFLICT DO NOTHING
)
SELECT name, id, (name, org_id) IN (SELECT table_name, org_id FROM there) AS held FROM live

-- name: is_table_held
-- Whether the attempt $3 of the task $2 references the table $1.
SELECT EXISTS (SELECT FROM table_references
    WHERE table_name = $1 AND owner = 'ATTEMPT' AND owner_id = $2 AND attempt = $3)

-- name: release_tables
-- Release references of attempts to tables.
DELETE FROM table_references r USING unnest($1::text[], $2::bigint[], $3::int[]) AS g (name, id, attempt)
WHERE r.table_name = g.name AND r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt

-- name: release_attempts
-- Release all references of attempts that did not succeed.
DELETE FROM table_references r USING unnest($1::bigint[], $2::int[]) AS g (id, attempt)
WHERE r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt

-- name: publish_tables
-- Reference the tables $4 in the results of the tasks $3, and release all references of the completed attempts ($1,
-- $2). Returns the tables that cannot be referenced: without any reference, also by the attempt or its arguments, or of
-- another org. A literal is kept with the task that returned it.
WITH ended AS (
    DELETE FROM table_references r USING unnest($1::bigint[], $2::int[]) AS g (id, attempt)
    WHERE r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt
),
results AS MATERIALIZED (
    SELECT DISTINCT g.id, g.name, t.job_id, t.org_id FROM unnest($3::bigint[], $4::text[]) AS g (id, name)
    CROSS JOIN LATERAL (SELECT t.job_id, t.org_id FROM tasks t WHERE t.id = g.id OFFSET 0) AS t
),
there AS MATERIALIZED (
    SELECT table_name, org_id FROM table_refcounts WHERE table_name = ANY ($4::text[]) AND refcount > 0
      AND dropping_at IS NULL ORDER BY table_name FOR NO KEY UPDATE
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, job_id)
    SELECT name, 'RESULT', id, job_id FROM results WHERE (name, org_id) IN (SELECT table_name, org_id FROM there)
    ORDER BY name ON CONFLICT DO NOTHING
)
SELECT id, name FROM results r WHERE (name, org_id) NOT IN (SELECT table_name, org_id FROM there) AND NOT EXISTS (
    SELECT FROM tasks l WHERE l.literal IS NOT NULL AND l.result ->> 'table_id' = r.name AND l.org_id = r.org_id)
ORDER BY id, name

-- name: release_results
-- Release the results of the tasks $1, which are reset, and the references of their attempts.
DELETE FROM table_references WHERE owner_id = ANY ($1::bigint[]) AND owner IN ('ATTEMPT', 'RESULT')

-- name: hold_arguments
-- Reference the tables $1, arguments of the tasks $2, by the job $3, or by each task if it has no job. Returns the
-- tables that cannot be referenced: unknown in the org $4, or being dropped.
WITH given AS (
    SELECT DISTINCT g.name, coalesce($3::bigint, g.id) AS owner_id
    FROM unnest($1::text[], $2::bigint[]) AS g (name, id)
),
there AS MATERIALIZED (
    SELECT table_name FROM table_refcounts WHERE table_name = ANY ($1::text[]) AND dropping_at IS NULL
      AND org_id = $4
    ORDER BY table_name FOR NO KEY UPDATE
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, job_id)
    SELECT g.name, CASE WHEN $3::bigint IS NULL THEN 'TASK' ELSE 'JOB' END::reference_owner, g.owner_id, $3
    FROM given g WHERE g.name IN (SELECT table_name FROM there) ON CONFLICT DO NOTHING
)
SELECT DISTINCT name FROM given WHERE name NOT IN (SELECT table_name FROM there) ORDER BY name

-- name: register_session_tables
-- Register the tables $1, created in ClickHouse only by the sessions $2.
WITH given AS (SELECT * FROM unnest($1::text[], $2::bigint[]) AS g (name, session)),
alive AS (
    INSERT INTO table_sessions (id, in_clickhouse) SELECT DISTINCT session, true FROM given ORDER BY session
    ON CONFLICT (id) DO UPDATE SET seen_at = now()
),
known AS (
    INSERT INTO table_refcounts (table_name) SELECT DISTINCT name FROM given ORDER BY name ON CONFLICT DO NOTHING
)
INSERT INTO table_references (table_name, owner, owner_id)
SELECT DISTINCT name, 'SESSION'::reference_owner, session FROM given ORDER BY name ON CONFLICT DO NOTHING

-- name: renew_session
-- Renew the heartbeat of the session $1.
INSERT INTO table_sessions (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET seen_at = now()

-- name: set_session_references
-- Set the reference counts $3 of the session $1 to the tables $2, and delete those to the tables $4: absolute numbers,
-- so that a repetition is harmless. Returns the referenced tables; those being dropped are not.
WITH alive AS (
    INSERT INTO table_sessions (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET seen_at = now()
),
known AS (
    INSERT INTO table_refcounts (table_name) SELECT name FROM unnest($2::text[] || $4::text[]) AS n (name) ORDER BY name
    ON CONFLICT DO NOTHING
),
locked AS MATERIALIZED (
    SELECT table_name, dropping_at FROM table_refcounts WHERE table_name = ANY ($2::text[])
    ORDER BY table_name FOR NO KEY UPDATE
),
more AS (
    INSERT INTO table_references (table_name, owner, owner_id, refs)
    SELECT g.name, 'SESSION', $1, g.refs FROM unnest($2::text[], $3::int[]) AS g (name, refs)
    WHERE g.name NOT IN (SELECT table_name FROM locked WHERE dropping_at IS NOT NULL) ORDER BY g.name
    ON CONFLICT (table_name, owner, owner_id, attempt, name) DO UPDATE SET refs = EXCLUDED.refs
    RETURNING table_name
),
gone AS (
    DELETE FROM table_references r USING unnest($4::text[]) AS g (name)
    WHERE r.table_name = g.name AND r.owner = 'SESSION' AND r.owner_id = $1
)
SELECT table_name FROM more

-- name: list_stale_sessions
-- Sessions without a heartbeat for $1 seconds, or with a heartbeat in ClickHouse only.
SELECT id, in_clickhouse FROM table_sessions
WHERE in_clickhouse OR seen_at < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'

-- name: release_sessions
-- Release all references of the sessions $1.
WITH gone AS (DELETE FROM table_sessions WHERE id = ANY ($1::bigint[]))
DELETE FROM table_references WHERE owner_id = ANY ($1::bigint[]) AND owner = 'SESSION'

-- name: name_table
-- Reference the table $1 by the name $2, in the org of the task $3 (NULL: the default org $4). Users choose names, so
-- tables of other orgs are registered with the org as prefix.
WITH whose AS (SELECT coalesce((SELECT t.org_id FROM tasks t WHERE t.id = $3), $4::uuid) AS org_id),
called AS MATERIALIZED (
    SELECT CASE WHEN org_id = $4 THEN $1 ELSE org_id::text || '.' || $1 END AS name, org_id FROM whose
),
known AS (
    INSERT INTO table_refcounts (table_name, org_id) SELECT name, org_id FROM called ON CONFLICT DO NOTHING
)
INSERT INTO table_references (table_name, owner, name) SELECT name, 'NAME', $2 FROM called ON CONFLICT DO NOTHING

-- name: unname_table
-- Delete the row of the named table $1, in the org of the task $2 (NULL: the default org $3), before it is dropped.
WITH whose AS (SELECT coalesce((SELECT t.org_id FROM tasks t WHERE t.id = $2), $3::uuid) AS org_id)
DELETE FROM table_refcounts
WHERE table_name = (SELECT CASE WHEN org_id = $3 THEN $1 ELSE org_id::text || '.' || $1 END FROM whose)

-- name: release_ended_jobs
-- Release references of ended jobs except to their final results (of completed tasks without dependents except their
-- own additions). A failed job may be retried and keeps its references for $1 seconds. Visits only jobs with more
-- references.
WITH RECURSIVE holding (id) AS (
    (SELECT job_id FROM table_references WHERE job_id IS NOT NULL AND NOT kept ORDER BY job_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.job_id FROM table_references r WHERE r.job_id IS NOT NULL AND NOT r.kept AND r.job_id > h.id
            ORDER BY r.job_id LIMIT 1)
    FROM holding h WHERE h.id IS NOT NULL
),
ended AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM holding)) AND completed_at IS NOT NULL
      AND (status <> 'FAILED' OR completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second')
    ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT r.ctid AS place, r.owner = 'RESULT' AND CASE
        WHEN t.has_dependents IS NULL THEN false
        WHEN NOT t.has_dependents THEN true
        ELSE NOT EXISTS (
            SELECT FROM dependencies d WHERE d.previous_id = r.owner_id AND d.next_type < 'handler'
              AND r.owner_id IS DISTINCT FROM CASE d.next_type
                WHEN 'task' THEN (SELECT n.added_by FROM tasks n WHERE n.id = d.next_id)
                ELSE (SELECT g.added_by FROM groups g WHERE g.id = d.next_id) END)
        END AS final
    FROM ended e CROSS JOIN LATERAL (
        SELECT r.ctid, r.owner, r.owner_id FROM table_references r WHERE r.job_id = e.id AND NOT r.kept OFFSET 0) AS r
    LEFT JOIN LATERAL (SELECT t.has_dependents FROM tasks t WHERE t.id = r.owner_id OFFSET 0) AS t ON true
),
staying AS (
    UPDATE table_references SET kept = true WHERE ctid = ANY (ARRAY(SELECT place FROM judged WHERE final)) AND NOT kept
    RETURNING 1
),
going AS (
    DELETE FROM table_references WHERE ctid = ANY (ARRAY(SELECT place FROM judged WHERE NOT final)) AND NOT kept
    RETURNING 1
)
SELECT (SELECT count(*) FROM going)::int AS released, (SELECT count(*) FROM staying)::int AS kept

-- name: release_jobs
-- Release all references of the ended jobs among $1, also to final results; returns these jobs.
WITH ended AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) AND completed_at IS NOT NULL ORDER BY id FOR NO KEY UPDATE
),
gone AS (DELETE FROM table_references WHERE job_id = ANY (ARRAY(SELECT id FROM ended)) RETURNING table_name)
SELECT id, (SELECT count(DISTINCT table_name) FROM gone)::int AS tables FROM ended

-- name: mark_tables_dropping
-- Mark up to $1 tables without references as being dropped: new references are refused from then on. The row lock
-- rechecks the count (PostgreSQL re-evaluates a row that has changed when it is locked): a concurrent reference keeps
-- the table. Tables that were marked $2 seconds ago are marked again: the dropping process has died.
UPDATE table_refcounts SET dropping_at = coalesce($3::timestamptz, now())
WHERE table_name = ANY (ARRAY(
    SELECT table_name FROM table_refcounts
    WHERE refcount <= 0
      AND (dropping_at IS NULL OR dropping_at <= coalesce($3::timestamptz, now()) - $2::float8 * interval '1 second')
    ORDER BY updated_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING table_name, org_id

-- name: mark_orphan_tables
-- Register unregistered tables of the org $2 as being dropped, so that they cannot be referenced; returns them.
INSERT INTO table_refcounts (table_name, org_id, dropping_at)
SELECT name, $2, now() FROM unnest($1::text[]) AS n (name) ORDER BY name
ON CONFLICT DO NOTHING RETURNING table_name

-- name: find_known_tables
-- Those of the tables $1 that are registered.
SELECT table_name FROM table_refcounts WHERE table_name = ANY ($1::text[])

-- name: find_referenced_tables
-- Those of the tables $1 that have references or are literals.
SELECT table_name FROM table_references WHERE table_name = ANY ($1::text[])
UNION
SELECT result ->> 'table_id' FROM tasks WHERE literal IS NOT NULL AND result ->> 'table_id' = ANY ($1::text[])

-- name: list_table_holders
-- Tasks (result, argument, attempt) and jobs that reference the tables $1 of the org $2, and whether they belong to a
-- DAG. Owner NULL: no reference, about to be dropped. Unregistered tables have no row.
SELECT c.table_name, r.owner::text, CASE WHEN r.owner <> 'JOB' THEN r.owner_id END AS task_id, j.dag_version_id IS NOT NULL AS of_dag
FROM table_refcounts c LEFT JOIN table_references r ON r.table_name = c.table_name LEFT JOIN jobs j ON j.id = r.job_id
WHERE c.table_name = ANY ($1::text[]) AND c.org_id = $2
  AND (r.table_name IS NULL OR r.owner IN ('RESULT', 'TASK', 'ATTEMPT', 'JOB'))

-- name: delete_tables
-- Delete the rows of the dropped tables $1.
DELETE FROM table_refcounts WHERE table_name = ANY ($1::text[]) AND dropping_at IS NOT NULL AND refcount <= 0

-- name: list_tables
-- Tables of the org $2 with their references, by name: those of the job $1 (NULL: any) and of the names $5 (NULL: any).
SELECT c.table_name, c.refcount, c.created_at,
    coalesce((SELECT jsonb_agg(jsonb_build_object('owner', r.owner, 'id', r.owner_id::text, 'attempt', r.attempt,
            'name', r.name, 'job_id', r.job_id::text, 'refs', r.refs) ORDER BY r.owner, r.owner_id)
        FROM table_references r WHERE r.table_name = c.table_name), '[]') AS owners
FROM table_refcounts c
WHERE ($1::bigint IS NULL OR c.table_name IN (SELECT r.table_name FROM table_references r WHERE r.job_id = $1))
  AND c.org_id = $2 AND c.table_name > $3 AND ($5::text[] IS NULL OR c.table_name = ANY ($5::text[])) ORDER BY c.table_name LIMIT $4

-- name: list_orgs_with_tables
SELECT DISTINCT org_id FROM table_refcounts

-- name: load_table_owners
-- References to the tables $1, at most $2 in all: results first, then arguments.
SELECT r.table_name, r.owner::text, r.owner_id, r.job_id, t.type FROM table_references r LEFT JOIN tasks t ON t.id = r.owner_id
WHERE r.table_name = ANY ($1::text[]) AND r.owner IN ('RESULT', 'TASK', 'JOB', 'ATTEMPT')
ORDER BY r.table_name, array_position('{RESULT,TASK,JOB,ATTEMPT}'::text[], r.owner::text), r.owner_id LIMIT $2

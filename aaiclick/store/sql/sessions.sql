-- name: end_stalled_sessions
-- Terminate sessions that have waited for their client for $1 seconds in the middle of a command, in a COPY for $2.
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'aaiclick' AND pid <> pg_backend_pid()
  AND state = 'active' AND wait_event = 'ClientRead' AND xact_start IS NOT NULL
  AND state_change < clock_timestamp() - make_interval(secs => CASE WHEN query ILIKE 'COPY %' THEN $2::float8 ELSE $1::float8 END)

-- name: get_backend_pid
-- The id of the server process of this session.
SELECT pg_backend_pid()

-- name: read_clock
-- The database's time, unless $1 is given.
SELECT coalesce($1::timestamptz, now())

-- name: read_uptime
-- Seconds since PostgreSQL started.
SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8

-- name: list_enum_types
-- The enums of the tables, by name, for which the system catalog has an index.
SELECT t.oid, t.typname::text AS name, t.typarray, pg_backend_pid() AS pid FROM pg_type t
WHERE t.typnamespace = 'public'::regnamespace AND t.typname = ANY ('{
    job_status, task_status, trigger_rule, task_readiness, worker_status, attempt_outcome, node_type, outbox_status,
    definition_status, reference_owner}'::name[])

-- name: list_schema_tables
-- Tables and views in the schemas of the search path, at most a hundred, except $1 and those of extensions.
SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname = ANY (current_schemas(false)) AND c.relname <> $1
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
ORDER BY c.relname LIMIT 100

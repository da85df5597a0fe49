-- The enums of our tables, by name: the catalog has an index for that.
SELECT t.oid, t.typname::text AS name, t.typarray, pg_backend_pid() AS pid FROM pg_type t
WHERE t.typnamespace = 'public'::regnamespace AND t.typname = ANY ('{
    job_status, task_status, task_readiness, worker_status, attempt_outcome, node_type, outbox_status,
    definition_status, reference_owner}'::name[])

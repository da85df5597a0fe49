-- name: insert_org
INSERT INTO orgs (name, slug, weight, max_running, rate_per_second, rate_burst) VALUES ($1, $2, $3, $4, $5, $6)
RETURNING id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at

-- name: list_orgs
SELECT id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at FROM orgs WHERE $1::uuid IS NULL OR id > $1 ORDER BY id LIMIT $2

-- name: get_org
SELECT id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at FROM orgs WHERE id = $1

-- name: find_org
-- The org with an id or slug; a slug may look like the id of another org.
SELECT id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at FROM orgs
WHERE id::text = lower($1::text) OR slug = $1 ORDER BY id::text = lower($1) DESC LIMIT 1

-- name: update_org
-- Update limits of the org $1, and its name unless $2 is NULL; its token bucket is reset.
UPDATE orgs SET name = coalesce($2, name), weight = $3, max_running = $4, rate_per_second = $5, rate_burst = $6, rate_tokens = NULL, rate_at = NULL
WHERE id = $1 RETURNING id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at

-- name: has_several_orgs
-- Whether there is more than one organisation; the claim statements check the same.
SELECT count(*) > 1 FROM (SELECT FROM orgs LIMIT 2) o

-- name: set_tenant
-- Set the org $1 (a text) of this session, until the connection returns to its pool.
SELECT set_config('aaiclick.org_id', $1, false)

-- name: check_api_role
-- The role of this session, and whether it bypasses row-level security.
SELECT current_user::text AS name, r.rolsuper OR r.rolbypassrls AS passes,
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
            AND c.relname <> 'aaiclick_version' AND (NOT c.relrowsecurity OR pg_has_role(current_user, c.relowner, 'USAGE')))
        AS owns
FROM pg_roles r WHERE r.rolname = current_user

-- name: has_api_role
-- Whether the API role exists, may be taken by this user, and has access to the newest table.
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'aaiclick_api')
   AND pg_has_role(current_user, (SELECT oid FROM pg_roles WHERE rolname = 'aaiclick_api'), 'MEMBER')
   AND has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = 'aaiclick_api'), 'notifications', 'DELETE')
   AND has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = 'aaiclick_api'), 'job_functions', 'DELETE')
   AND has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = 'aaiclick_api'), 'approvals', 'DELETE')
   AND has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = 'aaiclick_api'), 'rate_limits', 'DELETE')

-- name: create_api_role
-- Create the API role; roles belong to the server, so it may have been created for another database.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'aaiclick_api') THEN
        CREATE ROLE aaiclick_api NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$

-- name: join_api_role
-- Allow this user to take the API role.
DO $$ BEGIN
    IF NOT pg_has_role(current_user, 'aaiclick_api', 'MEMBER') OR NOT EXISTS (
        SELECT FROM pg_auth_members WHERE member = current_user::regrole AND roleid = 'aaiclick_api'::regrole) THEN
        EXECUTE format('GRANT aaiclick_api TO %I', current_user);
    END IF;
END $$

-- name: grant_api_role
-- Grant the API role access to tables; policies restrict it to rows. Reference counts and sessions are closed to it; it
-- cannot change audit entries and counts of queues.
GRANT SELECT, INSERT, UPDATE, DELETE ON orgs, queues, task_types, users, org_roles, org_role_memberships, api_keys, org_secrets,
    idempotency_keys, dag_versions, dag_current_versions, job_definitions, datasets, dataset_versions, dataset_partitions,
    dag_version_datasets, schedules, job_functions, jobs, groups, tasks, rate_limits, result_cache, dependencies, task_additions, task_attempts, workers, outbox, dispatches, waits, workflow_events, incidents, notification_channels,
    notification_rules, notifications, approvals, approval_links, task_inputs, data_test_results, dataset_freshness,
    column_lineage, operator_state, table_references TO aaiclick_api;
GRANT SELECT, INSERT ON audit_log TO aaiclick_api;
GRANT SELECT ON queue_minutes TO aaiclick_api;
GRANT USAGE ON SCHEMA public TO aaiclick_api

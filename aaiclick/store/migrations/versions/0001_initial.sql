-- The first schema. Statements are separated by an empty line; docs/internals/schema.md explains the design of the hot tables.

CREATE TYPE job_status AS ENUM ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED');

CREATE TYPE task_status AS ENUM ('PENDING', 'CLAIMED', 'RUNNING', 'COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED', 'SKIPPED');

CREATE TYPE trigger_rule AS ENUM ('any', 'failed', 'ended');

CREATE TYPE task_readiness AS ENUM ('READY', 'TIME', 'BLOCKED', 'HELD');

CREATE TYPE worker_status AS ENUM ('ACTIVE', 'IDLE', 'STOPPED');

CREATE TYPE attempt_outcome AS ENUM ('FAILED', 'TIMED_OUT', 'LOST', 'RELEASED', 'CANCELLED');

CREATE TYPE node_type AS ENUM ('task', 'group', 'handler');

CREATE TYPE outbox_status AS ENUM ('Pending', 'Processing', 'Done', 'Failed');

CREATE TYPE definition_status AS ENUM ('Pending', 'Running', 'Dead', 'Draining', 'Idle');

CREATE TYPE reference_owner AS ENUM ('ATTEMPT', 'RESULT', 'TASK', 'JOB', 'NAME', 'SESSION');

CREATE SEQUENCE leader_terms;

CREATE SEQUENCE dataset_tickets;

-- Organisations and users
CREATE TABLE orgs (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text NOT NULL,
    slug text NOT NULL,
    settings jsonb NOT NULL DEFAULT '{}',
    weight integer NOT NULL DEFAULT 1,
    max_running integer,
    rate_per_second double precision,
    rate_burst integer,
    rate_tokens double precision,
    rate_at timestamptz,
    claim_xid bigint,
    paused_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT orgs_pkey PRIMARY KEY (id),
    CONSTRAINT orgs_slug_key UNIQUE (slug),
    CONSTRAINT orgs_slug CHECK (slug ~ '^[a-z0-9][a-z0-9_-]*$'),
    CONSTRAINT orgs_weight CHECK (weight >= 1),
    CONSTRAINT orgs_max_running CHECK (max_running >= 0),
    CONSTRAINT orgs_rate CHECK (rate_per_second > 0 AND rate_burst >= 1)
);

CREATE TABLE queues (
    org_id uuid NOT NULL,
    name text NOT NULL,
    weight integer NOT NULL DEFAULT 1,
    max_running integer,
    rate_per_second double precision,
    rate_burst integer,
    rate_tokens double precision,
    rate_at timestamptz,
    claim_xid bigint,
    paused_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT queues_pkey PRIMARY KEY (org_id, name),
    CONSTRAINT queues_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT queues_named CHECK (name <> ''),
    CONSTRAINT queues_weight CHECK (weight >= 1),
    CONSTRAINT queues_max_running CHECK (max_running >= 0),
    CONSTRAINT queues_rate CHECK (rate_per_second > 0 AND rate_burst >= 1)
);

CREATE TABLE queue_minutes (
    org_id uuid NOT NULL,
    queue text NOT NULL,
    minute timestamptz NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    CONSTRAINT queue_minutes_pkey PRIMARY KEY (org_id, queue, minute),
    CONSTRAINT queue_minutes_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT queue_minutes_counts CHECK (completed >= 0 AND failed >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX queue_minutes_minute ON queue_minutes (minute);

CREATE TABLE task_types (
    org_id uuid NOT NULL,
    name text NOT NULL,
    retry_policy jsonb,
    paused_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT task_types_pkey PRIMARY KEY (org_id, name),
    CONSTRAINT task_types_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT task_types_named CHECK (name <> '')
);

CREATE INDEX task_types_paused ON task_types (org_id, name) WHERE paused_at IS NOT NULL;

CREATE TABLE users (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    org_id uuid NOT NULL,
    external_id text NOT NULL,
    email text,
    role text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz,
    CONSTRAINT users_pkey PRIMARY KEY (id),
    CONSTRAINT users_external_id_key UNIQUE (external_id),
    CONSTRAINT users_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT users_role CHECK (role IN ('reader', 'writer', 'admin'))
);

CREATE INDEX users_org ON users (org_id);

CREATE TABLE org_roles (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    org_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT org_roles_pkey PRIMARY KEY (id),
    CONSTRAINT org_roles_org_id_slug_key UNIQUE (org_id, slug),
    CONSTRAINT org_roles_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id)
);

CREATE TABLE org_role_memberships (
    role_id uuid NOT NULL,
    user_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT org_role_memberships_pkey PRIMARY KEY (role_id, user_id),
    CONSTRAINT org_role_memberships_role_id_fkey FOREIGN KEY (role_id) REFERENCES org_roles (id) ON DELETE CASCADE,
    CONSTRAINT org_role_memberships_user_id_fkey FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE INDEX org_role_memberships_user ON org_role_memberships (user_id);

CREATE TABLE api_keys (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    org_id uuid NOT NULL,
    user_id uuid,
    name text NOT NULL,
    prefix text NOT NULL,
    key_hash bytea NOT NULL,
    scopes text[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_prefix_key UNIQUE (prefix),
    CONSTRAINT api_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT api_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT api_keys_scopes CHECK
        (scopes <@ ARRAY['reader', 'writer', 'admin', 'worker'] AND cardinality(scopes) > 0)
);

CREATE INDEX api_keys_org ON api_keys (org_id, id);

CREATE INDEX api_keys_user ON api_keys (user_id);

CREATE TABLE org_secrets (
    org_id uuid NOT NULL,
    name text NOT NULL,
    host text,
    ciphertext bytea NOT NULL,
    key_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT org_secrets_pkey PRIMARY KEY (org_id, name),
    CONSTRAINT org_secrets_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT org_secrets_named CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$')
);

CREATE TABLE audit_log (
    id bigint GENERATED ALWAYS AS IDENTITY,
    org_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    request_id text,
    detail jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT audit_log_pkey PRIMARY KEY (id),
    CONSTRAINT audit_log_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id)
);

CREATE INDEX audit_log_org ON audit_log (org_id, id);

CREATE TABLE idempotency_keys (
    org_id uuid NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    status integer NOT NULL,
    body text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (org_id, route, key),
    CONSTRAINT idempotency_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id)
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE ui_sessions (
    token_hash bytea NOT NULL,
    key_id uuid,
    user_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    CONSTRAINT ui_sessions_pkey PRIMARY KEY (token_hash),
    CONSTRAINT ui_sessions_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_keys (id) ON DELETE CASCADE,
    CONSTRAINT ui_sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT ui_sessions_holder CHECK (num_nonnulls(key_id, user_id) = 1)
);

CREATE INDEX ui_sessions_age ON ui_sessions (expires_at);

CREATE INDEX ui_sessions_key ON ui_sessions (key_id);

CREATE INDEX ui_sessions_user ON ui_sessions (user_id);

-- DAG versions, definitions, datasets
CREATE TABLE dag_versions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    org_id uuid NOT NULL,
    dag_name text NOT NULL,
    yaml_hash text NOT NULL,
    yaml text NOT NULL,
    created_by uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    ready_at timestamptz,
    fill_job_id bigint,
    serving_at_fill uuid,
    deploy_ticket bigint NOT NULL DEFAULT 0,
    CONSTRAINT dag_versions_pkey PRIMARY KEY (id),
    CONSTRAINT dag_versions_org_id_dag_name_yaml_hash_key UNIQUE (org_id, dag_name, yaml_hash),
    CONSTRAINT dag_versions_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT dag_versions_created_by_fkey FOREIGN KEY (created_by) REFERENCES users (id) ON DELETE SET NULL
);

CREATE INDEX dag_versions_created_by ON dag_versions (created_by);

CREATE TABLE dag_current_versions (
    org_id uuid NOT NULL,
    dag_name text NOT NULL,
    dag_version_id uuid NOT NULL,
    serving_since timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    paused_at timestamptz,
    CONSTRAINT dag_current_versions_pkey PRIMARY KEY (org_id, dag_name),
    CONSTRAINT dag_current_versions_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT dag_current_versions_dag_version_id_fkey FOREIGN KEY (dag_version_id) REFERENCES dag_versions (id)
);

CREATE INDEX dag_current_versions_version ON dag_current_versions (dag_version_id);

CREATE TABLE job_definitions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    org_id uuid NOT NULL,
    name text NOT NULL,
    dag_name text NOT NULL,
    dag_version_id uuid NOT NULL,
    activation text NOT NULL,
    runtime text NOT NULL,
    operator text NOT NULL,
    source jsonb,
    bootstrap jsonb,
    execution_strategy text,
    idle_timeout text,
    config jsonb NOT NULL DEFAULT '{}',
    config_hash text NOT NULL,
    spec jsonb NOT NULL DEFAULT '{}',
    input_datasets text[],
    output_datasets text[],
    rejected_datasets text[],
    reference_datasets text[],
    update_strategy text NOT NULL,
    unique_key text[],
    scaling jsonb,
    timeout_seconds integer,
    heartbeat_timeout_seconds integer,
    max_attempts integer NOT NULL DEFAULT 3,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    status definition_status NOT NULL,
    last_heartbeat timestamptz,
    last_event_at timestamptz,
    next_run_at timestamptz,
    CONSTRAINT job_definitions_pkey PRIMARY KEY (id),
    CONSTRAINT job_definitions_dag_version_id_name_key UNIQUE (dag_version_id, name),
    CONSTRAINT job_definitions_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT job_definitions_dag_version_id_fkey FOREIGN KEY (dag_version_id)
        REFERENCES dag_versions (id) ON DELETE CASCADE,
    CONSTRAINT job_definitions_activation CHECK (activation IN ('source', 'reactive')),
    CONSTRAINT job_definitions_runtime CHECK
        (runtime IN ('pool', 'dispatcher', 'lambda') OR runtime ~ '^ecs_[a-z0-9_]+$'),
    CONSTRAINT job_definitions_source CHECK ((activation = 'source') = (source IS NOT NULL)),
    CONSTRAINT job_definitions_bootstrap CHECK (activation = 'source' OR bootstrap IS NULL),
    CONSTRAINT job_definitions_strategy_activation CHECK
        ((activation = 'reactive') = (execution_strategy IS NOT NULL)),
    CONSTRAINT job_definitions_execution_strategy CHECK (execution_strategy IN ('PerUpdate', 'PerPartition', 'Coalesce')),
    CONSTRAINT job_definitions_idle_timeout CHECK (activation = 'reactive' OR idle_timeout IS NULL),
    CONSTRAINT job_definitions_update_strategy CHECK (update_strategy IN ('append', 'replace')),
    CONSTRAINT job_definitions_unique_key CHECK
        (update_strategy <> 'append' OR COALESCE(cardinality(unique_key), 0) > 0),
    CONSTRAINT job_definitions_status CHECK
        (CASE activation WHEN 'source' THEN status <> 'Idle' ELSE status IN ('Idle', 'Running') END),
    CONSTRAINT job_definitions_limits CHECK
        (timeout_seconds > 0 AND heartbeat_timeout_seconds > 0 AND max_attempts >= 1)
);

CREATE INDEX job_definitions_inputs ON job_definitions USING gin (input_datasets);

CREATE INDEX job_definitions_dead ON job_definitions (id) WHERE status = 'Dead';

CREATE INDEX job_definitions_next_run ON job_definitions (next_run_at) WHERE next_run_at IS NOT NULL;

CREATE INDEX job_definitions_org ON job_definitions (org_id, dag_name, name);

CREATE TABLE datasets (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    org_id uuid NOT NULL,
    name text NOT NULL,
    producer_dag_name text NOT NULL,
    producer_job_name text NOT NULL,
    producer_output_index integer NOT NULL,
    storage jsonb NOT NULL DEFAULT '{}',
    read_roles text[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT datasets_pkey PRIMARY KEY (id),
    CONSTRAINT datasets_org_id_name_key UNIQUE (org_id, name),
    CONSTRAINT datasets_producer_key UNIQUE (org_id, producer_dag_name, producer_job_name, producer_output_index),
    CONSTRAINT datasets_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT datasets_output_index CHECK (producer_output_index >= 0)
);

CREATE TABLE dataset_versions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    dataset_uuid uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    storage_location text NOT NULL,
    config_hash text NOT NULL,
    schema_hash text,
    range_start bigint,
    range_end bigint,
    dag_version_id uuid,
    columns jsonb,
    files jsonb NOT NULL DEFAULT '[]',
    rows bigint,
    ticket bigint NOT NULL DEFAULT 0,
    publishes bigint NOT NULL DEFAULT 0,
    publishing_table text,
    publishing_task bigint,
    publishing_lease uuid,
    updated_at timestamptz,
    CONSTRAINT dataset_versions_pkey PRIMARY KEY (id),
    CONSTRAINT dataset_versions_dataset_uuid_fkey FOREIGN KEY (dataset_uuid)
        REFERENCES datasets (id) ON DELETE CASCADE,
    CONSTRAINT dataset_versions_dag_version_id_fkey FOREIGN KEY (dag_version_id)
        REFERENCES dag_versions (id) ON DELETE SET NULL,
    CONSTRAINT dataset_versions_range CHECK (range_start <= range_end)
);

CREATE UNIQUE INDEX dataset_versions_identity
    ON dataset_versions (dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]'));

CREATE INDEX dataset_versions_dag_version ON dataset_versions (dag_version_id);

CREATE TABLE dataset_partitions (
    dataset_version uuid NOT NULL,
    partition_key text NOT NULL,
    ticket bigint NOT NULL,
    recorded_ticket bigint NOT NULL DEFAULT 0,
    rows bigint,
    digest text,
    inputs_hash text,
    task_id bigint,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT dataset_partitions_pkey PRIMARY KEY (dataset_version, partition_key),
    CONSTRAINT dataset_partitions_dataset_version_fkey FOREIGN KEY (dataset_version)
        REFERENCES dataset_versions (id) ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE dag_version_datasets (
    dag_version_id uuid NOT NULL,
    dataset_uuid uuid NOT NULL,
    dataset_version uuid NOT NULL,
    CONSTRAINT dag_version_datasets_pkey PRIMARY KEY (dag_version_id, dataset_uuid),
    CONSTRAINT dag_version_datasets_dag_version_id_fkey FOREIGN KEY (dag_version_id)
        REFERENCES dag_versions (id) ON DELETE CASCADE,
    CONSTRAINT dag_version_datasets_dataset_uuid_fkey FOREIGN KEY (dataset_uuid)
        REFERENCES datasets (id) ON DELETE CASCADE,
    CONSTRAINT dag_version_datasets_dataset_version_fkey FOREIGN KEY (dataset_version)
        REFERENCES dataset_versions (id)
);

CREATE INDEX dag_version_datasets_dataset ON dag_version_datasets (dataset_uuid);

CREATE INDEX dag_version_datasets_version ON dag_version_datasets (dataset_version);

-- Schedules of jobs and queue items
CREATE TABLE schedules (
    id bigint NOT NULL,
    org_id uuid NOT NULL,
    name text NOT NULL,
    entrypoint text,
    job_name text,
    item_type text,
    kwargs jsonb NOT NULL DEFAULT '{}',
    options jsonb NOT NULL DEFAULT '{}',
    cron text,
    every_seconds double precision,
    timezone text NOT NULL,
    anchor_at timestamptz NOT NULL DEFAULT now(),
    missed text NOT NULL,
    max_missed integer NOT NULL,
    overlap text NOT NULL,
    nominal_parameter text,
    nominal_type text,
    timeout_seconds double precision,
    declared_in text,
    next_run_at timestamptz,
    due_at timestamptz,
    paused_at timestamptz,
    missing_at timestamptz,
    last_nominal_at timestamptz,
    last_run_id bigint,
    skipped bigint NOT NULL DEFAULT 0,
    error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schedules_pkey PRIMARY KEY (id),
    CONSTRAINT schedules_org_id_name_key UNIQUE (org_id, name),
    CONSTRAINT schedules_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT schedules_named CHECK (name <> ''),
    CONSTRAINT schedules_target CHECK (num_nonnulls(entrypoint, item_type) = 1),
    CONSTRAINT schedules_job_name CHECK ((entrypoint IS NULL) = (job_name IS NULL)),
    CONSTRAINT schedules_times CHECK (num_nonnulls(cron, every_seconds) = 1 AND COALESCE(every_seconds, 1) >= 1),
    CONSTRAINT schedules_missed CHECK (missed IN ('skip', 'latest', 'all') AND max_missed >= 1),
    CONSTRAINT schedules_overlap CHECK (overlap IN ('allow', 'queue', 'skip', 'cancel_running')),
    CONSTRAINT schedules_item_overlap CHECK (item_type IS NULL OR overlap = 'allow'),
    CONSTRAINT schedules_nominal CHECK ((nominal_parameter IS NULL) = (nominal_type IS NULL)),
    CONSTRAINT schedules_nominal_type CHECK (nominal_type IN ('date', 'datetime')),
    CONSTRAINT schedules_timeout CHECK (timeout_seconds > 0),
    CONSTRAINT schedules_due CHECK
        (due_at IS NULL OR (next_run_at IS NOT NULL AND paused_at IS NULL AND missing_at IS NULL)),
    CONSTRAINT schedules_active CHECK
        (next_run_at IS NULL OR due_at IS NOT NULL OR paused_at IS NOT NULL OR missing_at IS NOT NULL)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX schedules_declared ON schedules (org_id, declared_in) WHERE declared_in IS NOT NULL;

CREATE INDEX schedules_next_due ON schedules (due_at) WHERE due_at IS NOT NULL;

-- @job functions that workers have registered
CREATE TABLE job_functions (
    org_id uuid NOT NULL,
    entrypoint text NOT NULL,
    module text NOT NULL,
    name text NOT NULL,
    documentation text NOT NULL,
    parameters jsonb NOT NULL DEFAULT '{}',
    schedule text,
    timeout_seconds double precision,
    tags jsonb NOT NULL DEFAULT '{}',
    owner text,
    code_version text,
    policy jsonb NOT NULL DEFAULT '{}',
    registered_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT job_functions_pkey PRIMARY KEY (org_id, entrypoint),
    CONSTRAINT job_functions_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT job_functions_named CHECK (name <> ''),
    CONSTRAINT job_functions_timeout CHECK (timeout_seconds > 0)
);

-- Jobs and tasks
CREATE TABLE jobs (
    id bigint NOT NULL,
    org_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    status job_status NOT NULL DEFAULT 'PENDING',
    total_tasks integer NOT NULL DEFAULT 0,
    open_tasks integer NOT NULL DEFAULT 0,
    failed_tasks integer NOT NULL DEFAULT 0,
    cancelled_tasks integer NOT NULL DEFAULT 0,
    open_events integer NOT NULL DEFAULT 0,
    has_waiters boolean NOT NULL DEFAULT false,
    name text NOT NULL,
    definition_id uuid,
    dag_version_id uuid,
    schedule_id bigint,
    parent_job_id bigint,
    parent_task_id bigint,
    trigger jsonb,
    tags jsonb,
    concurrency integer,
    policy jsonb,
    idempotency_key text,
    timeout_seconds double precision,
    deadline_at timestamptz,
    due_at timestamptz,
    missed_at timestamptz,
    cancel_requested_at timestamptz,
    paused_at timestamptz,
    started_at timestamptz,
    restarted_at timestamptz,
    completed_at timestamptz,
    cause_id bigint,
    error text,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_org_id_id_key UNIQUE (org_id, id),
    CONSTRAINT jobs_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT jobs_definition_id_fkey FOREIGN KEY (definition_id) REFERENCES job_definitions (id),
    CONSTRAINT jobs_dag_version_id_fkey FOREIGN KEY (dag_version_id) REFERENCES dag_versions (id),
    CONSTRAINT jobs_named CHECK (name <> ''),
    CONSTRAINT jobs_timeout CHECK (timeout_seconds > 0),
    CONSTRAINT jobs_concurrency CHECK (concurrency > 0),
    CONSTRAINT jobs_ended CHECK ((status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = (completed_at IS NOT NULL)),
    CONSTRAINT jobs_ended_tasks CHECK (completed_at IS NULL OR open_tasks = 0),
    CONSTRAINT jobs_success CHECK (status <> 'COMPLETED' OR (failed_tasks + cancelled_tasks + open_events = 0)),
    CONSTRAINT jobs_started CHECK (status <> 'RUNNING' OR started_at IS NOT NULL),
    CONSTRAINT jobs_open_tasks CHECK (open_tasks BETWEEN 0 AND total_tasks),
    CONSTRAINT jobs_failed_tasks CHECK (failed_tasks BETWEEN 0 AND total_tasks),
    CONSTRAINT jobs_cancelled_tasks CHECK (cancelled_tasks BETWEEN 0 AND total_tasks),
    CONSTRAINT jobs_open_events CHECK (open_events >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX jobs_dag_version ON jobs (dag_version_id, id) WHERE dag_version_id IS NOT NULL;

CREATE INDEX jobs_deadline ON jobs (deadline_at) WHERE completed_at IS NULL AND deadline_at IS NOT NULL;

CREATE INDEX jobs_due ON jobs (due_at) WHERE completed_at IS NULL AND due_at IS NOT NULL AND missed_at IS NULL;

CREATE INDEX jobs_definition ON jobs (definition_id, id) WHERE definition_id IS NOT NULL;

CREATE INDEX jobs_limited ON jobs (org_id, name, id) WHERE completed_at IS NULL AND concurrency IS NOT NULL;

CREATE INDEX jobs_tags ON jobs USING gin (tags jsonb_path_ops) WHERE tags IS NOT NULL;

CREATE INDEX jobs_parent ON jobs (parent_job_id, id) WHERE parent_job_id IS NOT NULL;

CREATE INDEX jobs_parent_task ON jobs (parent_task_id, id) WHERE parent_task_id IS NOT NULL;

CREATE INDEX jobs_unsuccessful ON jobs (org_id, status, id) WHERE status IN ('FAILED', 'CANCELLED');

CREATE UNIQUE INDEX jobs_idempotency_key ON jobs (org_id, name, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX jobs_name ON jobs (org_id, name, id);

CREATE INDEX jobs_paused ON jobs (id) WHERE paused_at IS NOT NULL;

CREATE INDEX jobs_schedule ON jobs (schedule_id, id) WHERE schedule_id IS NOT NULL;

CREATE INDEX jobs_schedule_unfinished ON jobs (schedule_id)
    WHERE schedule_id IS NOT NULL AND status IN ('PENDING', 'RUNNING');

CREATE INDEX jobs_unfinished ON jobs (org_id, id) WHERE completed_at IS NULL;

CREATE TABLE groups (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    parent_group_id bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    unmet integer NOT NULL DEFAULT 0,
    open integer NOT NULL DEFAULT 0,
    name text NOT NULL,
    completed_at timestamptz,
    failed_at timestamptz,
    skipped_at timestamptz,
    cause_id bigint,
    added_by bigint,
    CONSTRAINT groups_pkey PRIMARY KEY (id),
    CONSTRAINT groups_job_id_id_key UNIQUE (job_id, id),
    CONSTRAINT groups_job_id_parent_group_id_fkey FOREIGN KEY (job_id, parent_group_id) REFERENCES groups (job_id, id),
    CONSTRAINT groups_job_id_fkey FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT groups_parent CHECK (parent_group_id <> id),
    CONSTRAINT groups_counters CHECK (unmet >= 0 AND open >= 0),
    CONSTRAINT groups_completed CHECK (completed_at IS NULL OR (unmet = 0 AND open = 0 AND failed_at IS NULL)),
    CONSTRAINT groups_cause CHECK ((failed_at IS NULL) = (cause_id IS NULL)),
    CONSTRAINT groups_outcome CHECK (num_nonnulls(completed_at, failed_at, skipped_at) < 2)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX groups_parent ON groups (parent_group_id) WHERE parent_group_id IS NOT NULL;

CREATE TABLE tasks (
    id bigint NOT NULL,
    org_id uuid NOT NULL DEFAULT '00000000-0000-4000-8000-000000000001',
    created_at timestamptz NOT NULL DEFAULT now(),
    failures integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 4,
    unmet integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 0,
    has_dependents boolean NOT NULL DEFAULT false,
    critical boolean NOT NULL DEFAULT true,
    repeatable boolean NOT NULL DEFAULT false,
    passed_over boolean NOT NULL DEFAULT false,
    attempt integer NOT NULL DEFAULT 0,
    worker_id bigint,
    lease_expires_at timestamptz,
    last_heartbeat timestamptz,
    claimed_at timestamptz,
    status task_status NOT NULL DEFAULT 'PENDING',
    readiness task_readiness DEFAULT 'READY',
    updated_at timestamptz NOT NULL DEFAULT now(),
    lease_token uuid,
    started_at timestamptz,
    completed_at timestamptz,
    cancel_requested_at timestamptz,
    available_at timestamptz,
    next_retry_at timestamptz,
    job_id bigint,
    group_id bigint,
    cause_id bigint,
    added_by bigint,
    cached_from bigint,
    definition_id uuid,
    timeout_seconds double precision,
    lease_seconds double precision,
    concurrency_limit integer,
    depth integer,
    trigger_rule trigger_rule,
    queue text NOT NULL DEFAULT 'default',
    type text NOT NULL,
    entrypoint text,
    kwargs jsonb NOT NULL DEFAULT '{}',
    retry_policy jsonb,
    idempotency_key text,
    dedupe_key text,
    concurrency_key text,
    rate text,
    rate_key text,
    partitions text[],
    input_versions jsonb,
    result jsonb,
    literal text,
    outputs jsonb,
    error text,
    error_fingerprint text,
    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT tasks_job_id_group_id_fkey FOREIGN KEY (job_id, group_id) REFERENCES groups (job_id, id),
    CONSTRAINT tasks_job_id_fkey FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT tasks_phase CHECK (num_nonnulls(readiness, lease_token, completed_at) = 1),
    CONSTRAINT tasks_lease CHECK ((lease_token IS NOT NULL) = (status IN ('CLAIMED', 'RUNNING'))),
    CONSTRAINT tasks_waiting CHECK ((readiness IS NOT NULL) = (status = 'PENDING' OR next_retry_at IS NOT NULL)),
    CONSTRAINT tasks_holder CHECK (lease_token IS NULL OR num_nulls(lease_expires_at, worker_id, claimed_at) = 0),
    CONSTRAINT tasks_blocked CHECK (unmet = 0 OR COALESCE(readiness IN ('BLOCKED', 'HELD'), completed_at IS NOT NULL)),
    CONSTRAINT tasks_timed CHECK (readiness <> 'TIME' OR available_at IS NOT NULL),
    CONSTRAINT tasks_retry CHECK
        (next_retry_at IS NULL OR (status = 'FAILED' AND readiness <> 'READY' AND available_at = next_retry_at)),
    CONSTRAINT tasks_cause CHECK (cause_id IS NULL OR status = 'CANCELLED'),
    CONSTRAINT tasks_counters CHECK (failures <= LEAST(attempt, max_attempts) AND max_attempts > 0 AND unmet >= 0),
    CONSTRAINT tasks_group_job CHECK (group_id IS NULL OR job_id IS NOT NULL)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX tasks_concurrency
    ON tasks (org_id, concurrency_key)
    WHERE concurrency_key IS NOT NULL AND (readiness = 'READY' OR status IN ('CLAIMED', 'RUNNING'));

CREATE INDEX tasks_dead_letter ON tasks (org_id, completed_at) WHERE status = 'DEAD_LETTER';

CREATE INDEX tasks_dead_letter_job ON tasks (job_id) WHERE status = 'DEAD_LETTER';

CREATE INDEX tasks_dead_letter_fingerprint ON tasks (org_id, error_fingerprint, type) WHERE status = 'DEAD_LETTER';

CREATE UNIQUE INDEX tasks_dedupe_key ON tasks (definition_id, dedupe_key) WHERE dedupe_key IS NOT NULL;

CREATE INDEX tasks_definition ON tasks (definition_id, id) WHERE definition_id IS NOT NULL;

CREATE INDEX tasks_literal ON tasks ((result ->> 'table_id')) WHERE literal IS NOT NULL;

CREATE INDEX tasks_due ON tasks (available_at) WHERE readiness = 'TIME';

CREATE INDEX tasks_group ON tasks (group_id, id) WHERE group_id IS NOT NULL;

CREATE INDEX tasks_held ON tasks (org_id, concurrency_key, priority DESC, (COALESCE(job_id, id)), id)
    WHERE readiness = 'HELD';

CREATE UNIQUE INDEX tasks_idempotency_key ON tasks (org_id, type, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX tasks_job ON tasks (job_id, id) WHERE job_id IS NOT NULL;

CREATE INDEX tasks_live ON tasks (worker_id) WHERE status IN ('CLAIMED', 'RUNNING');

CREATE INDEX tasks_org ON tasks (org_id, id) WHERE org_id <> '00000000-0000-4000-8000-000000000001';

CREATE INDEX tasks_rated ON tasks (org_id, (COALESCE(rate_key, type)), priority DESC, (COALESCE(job_id, id)), id)
    WHERE readiness = 'HELD' AND rate IS NOT NULL;

CREATE INDEX tasks_ready ON tasks (org_id, queue, priority DESC, (COALESCE(job_id, id)), id) WHERE readiness = 'READY';

CREATE TABLE result_cache (
    org_id uuid NOT NULL,
    key text NOT NULL,
    task_id bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT result_cache_pkey PRIMARY KEY (org_id, key),
    CONSTRAINT result_cache_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id)
);

CREATE TABLE rate_limits (
    org_id uuid NOT NULL,
    key text NOT NULL,
    allowed integer NOT NULL,
    seconds double precision NOT NULL,
    charged_at timestamptz NOT NULL,
    next_at timestamptz,
    ends timestamptz[] NOT NULL,
    counts integer[] NOT NULL,
    CONSTRAINT rate_limits_pkey PRIMARY KEY (org_id, key),
    CONSTRAINT rate_limits_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT rate_limits_positive CHECK (allowed > 0 AND seconds > 0),
    CONSTRAINT rate_limits_slots CHECK (cardinality(ends) = cardinality(counts))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX rate_limits_due ON rate_limits (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE dependencies (
    previous_id bigint NOT NULL,
    next_id bigint NOT NULL,
    previous_type node_type NOT NULL,
    next_type node_type NOT NULL,
    CONSTRAINT dependencies_pkey PRIMARY KEY (previous_id, next_id, previous_type, next_type),
    CONSTRAINT dependencies_distinct CHECK (previous_id <> next_id)
);

CREATE INDEX dependencies_next ON dependencies (next_id);

CREATE TABLE task_additions (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    first_id bigint NOT NULL,
    tasks bigint[] NOT NULL,
    groups bigint[] NOT NULL,
    CONSTRAINT task_additions_pkey PRIMARY KEY (task_id, attempt, first_id),
    CONSTRAINT task_additions_task_id_fkey FOREIGN KEY (task_id) REFERENCES tasks (id) ON DELETE CASCADE
);

CREATE TABLE task_attempts (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    charged boolean NOT NULL,
    outcome attempt_outcome NOT NULL,
    worker_id bigint,
    claimed_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz NOT NULL DEFAULT now(),
    error text,
    error_fingerprint text,
    log_path text,
    CONSTRAINT task_attempts_pkey PRIMARY KEY (task_id, attempt),
    CONSTRAINT task_attempts_task_id_fkey FOREIGN KEY (task_id) REFERENCES tasks (id) ON DELETE CASCADE,
    CONSTRAINT task_attempts_attempt CHECK (attempt >= 1),
    CONSTRAINT task_attempts_released CHECK (outcome <> 'RELEASED' OR NOT charged)
);

-- Workers
CREATE TABLE workers (
    id bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    last_heartbeat timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz,
    tasks_completed bigint NOT NULL DEFAULT 0,
    tasks_failed bigint NOT NULL DEFAULT 0,
    last_count_report bigint NOT NULL DEFAULT 0,
    pid integer NOT NULL,
    pool_size integer NOT NULL DEFAULT 1,
    status worker_status NOT NULL DEFAULT 'ACTIVE',
    is_leader boolean NOT NULL DEFAULT false,
    leader_until timestamptz,
    leader_term bigint,
    hostname text NOT NULL,
    version text,
    queues text[] NOT NULL DEFAULT '{}',
    org_id uuid,
    drain_requested_at timestamptz,
    log_directory text,
    code_version text,
    code_modules text[] NOT NULL DEFAULT '{}',
    CONSTRAINT workers_pkey PRIMARY KEY (id),
    CONSTRAINT workers_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT workers_pool_size CHECK (pool_size >= 1),
    CONSTRAINT workers_counters CHECK (tasks_completed >= 0 AND tasks_failed >= 0),
    CONSTRAINT workers_stopped CHECK ((status = 'STOPPED') = (stopped_at IS NOT NULL)),
    CONSTRAINT workers_leader_until CHECK (is_leader = (leader_until IS NOT NULL)),
    CONSTRAINT workers_leader CHECK (NOT is_leader OR (leader_term IS NOT NULL AND status <> 'STOPPED'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX workers_leader ON workers (is_leader) WHERE is_leader;

CREATE INDEX workers_present ON workers (id) WHERE status <> 'STOPPED';

-- Records of tasks
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY,
    org_id uuid NOT NULL,
    job_id bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    available_at timestamptz NOT NULL DEFAULT now(),
    status outbox_status NOT NULL DEFAULT 'Pending',
    attempts integer NOT NULL DEFAULT 0,
    kind text NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    cursor text,
    processed_at timestamptz,
    last_error text,
    CONSTRAINT outbox_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_org_id_job_id_fkey FOREIGN KEY (org_id, job_id) REFERENCES jobs (org_id, id) ON DELETE CASCADE,
    CONSTRAINT outbox_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT outbox_kind CHECK (kind = 'route_event'),
    CONSTRAINT outbox_processed CHECK ((status IN ('Done', 'Failed')) = (processed_at IS NOT NULL)),
    CONSTRAINT outbox_attempts CHECK (attempts >= 0),
    CONSTRAINT outbox_failed CHECK (status <> 'Failed' OR last_error IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX outbox_failed ON outbox (org_id, id) WHERE status = 'Failed';

CREATE INDEX outbox_job ON outbox (job_id) WHERE job_id IS NOT NULL;

CREATE INDEX outbox_pending ON outbox (kind, id) WHERE status = 'Pending';

CREATE TABLE waits (
    task_id bigint NOT NULL,
    org_id uuid NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(),
    attempt integer NOT NULL,
    job_id bigint,
    wait_type text NOT NULL,
    name text NOT NULL DEFAULT '',
    key text NOT NULL DEFAULT '',
    CONSTRAINT waits_pkey PRIMARY KEY (task_id),
    CONSTRAINT waits_task_id_fkey FOREIGN KEY (task_id) REFERENCES tasks (id) ON DELETE CASCADE,
    CONSTRAINT waits_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT waits_wait_type CHECK (wait_type IN ('time', 'event', 'job', 'poll', 'approval')),
    CONSTRAINT waits_job CHECK ((wait_type = 'job') = (job_id IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX waits_event ON waits (org_id, name, key) WHERE wait_type = 'event';

CREATE INDEX waits_job ON waits (job_id) WHERE job_id IS NOT NULL;

CREATE TABLE workflow_events (
    id bigint NOT NULL,
    org_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    name text NOT NULL,
    key text NOT NULL DEFAULT '',
    payload jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT workflow_events_pkey PRIMARY KEY (id),
    CONSTRAINT workflow_events_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT workflow_events_named CHECK (name <> '')
);

CREATE INDEX workflow_events_name ON workflow_events (org_id, name, key, id);

CREATE INDEX workflow_events_expiry ON workflow_events (expires_at);

CREATE TABLE incidents (
    id bigint GENERATED ALWAYS AS IDENTITY,
    org_id uuid NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    count bigint NOT NULL DEFAULT 1,
    rule text NOT NULL,
    fingerprint text NOT NULL,
    severity text NOT NULL,
    title text NOT NULL,
    cause text,
    dag_name text,
    job_name text,
    task_type text,
    error_fingerprint text,
    tags text[] NOT NULL DEFAULT '{}',
    job_id bigint,
    task_id bigint,
    acknowledged_at timestamptz,
    acknowledged_by text,
    snoozed_until timestamptz,
    escalate_at timestamptz,
    escalated_at timestamptz,
    closed_at timestamptz,
    closed_by text,
    opened_routed_at timestamptz,
    closed_routed_at timestamptz,
    CONSTRAINT incidents_pkey PRIMARY KEY (id),
    CONSTRAINT incidents_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT incidents_severity CHECK (severity IN ('info', 'warning', 'error', 'critical')),
    CONSTRAINT incidents_count CHECK (count >= 1),
    CONSTRAINT incidents_closed CHECK ((closed_at IS NULL) = (closed_by IS NULL)),
    CONSTRAINT incidents_acknowledged CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX incidents_open ON incidents (org_id, rule, fingerprint) WHERE closed_at IS NULL;

CREATE INDEX incidents_key ON incidents (org_id, rule, fingerprint, id);

CREATE INDEX incidents_org ON incidents (org_id, id);

CREATE INDEX incidents_unclosed ON incidents (id) WHERE closed_at IS NULL;

CREATE INDEX incidents_unrouted ON incidents (id)
    WHERE opened_routed_at IS NULL OR (closed_at IS NOT NULL AND closed_routed_at IS NULL);

CREATE INDEX incidents_escalating ON incidents (escalate_at) WHERE escalate_at IS NOT NULL;

CREATE INDEX incidents_snoozed ON incidents (snoozed_until) WHERE snoozed_until IS NOT NULL;

CREATE INDEX incidents_failing_channel ON incidents (org_id, task_type)
    WHERE closed_at IS NULL AND rule = 'channel_failing';

CREATE INDEX incidents_closed ON incidents (closed_at) WHERE closed_at IS NOT NULL;

CREATE TABLE incident_occurrences (
    id bigint GENERATED ALWAYS AS IDENTITY,
    org_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    count integer NOT NULL,
    rule text NOT NULL,
    fingerprint text NOT NULL,
    job_id bigint,
    task_id bigint,
    CONSTRAINT incident_occurrences_pkey PRIMARY KEY (id),
    CONSTRAINT incident_occurrences_count CHECK (count >= 1)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE notification_channels (
    org_id uuid NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    channel_type text NOT NULL,
    config jsonb NOT NULL DEFAULT '{}',
    roles text[] NOT NULL DEFAULT '{}',
    digest_seconds double precision,
    quiet_from text,
    quiet_until text,
    timezone text NOT NULL DEFAULT 'UTC',
    CONSTRAINT notification_channels_pkey PRIMARY KEY (org_id, name),
    CONSTRAINT notification_channels_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT notification_channels_channel_type CHECK
        (channel_type IN ('webhook', 'slack', 'teams', 'pagerduty', 'email')),
    CONSTRAINT notification_channels_digest CHECK (digest_seconds > 0),
    CONSTRAINT notification_channels_quiet CHECK ((quiet_from IS NULL) = (quiet_until IS NULL))
);

CREATE TABLE notification_rules (
    org_id uuid NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    rules text[] NOT NULL DEFAULT '{}',
    min_severity text NOT NULL DEFAULT 'info',
    dag_name text,
    job_name text,
    task_type text,
    tag text,
    channels text[] NOT NULL DEFAULT '{}',
    escalate_after_seconds double precision,
    escalate_to text[] NOT NULL DEFAULT '{}',
    CONSTRAINT notification_rules_pkey PRIMARY KEY (org_id, name),
    CONSTRAINT notification_rules_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT notification_rules_min_severity CHECK (min_severity IN ('info', 'warning', 'error', 'critical')),
    CONSTRAINT notification_rules_escalation CHECK
        ((escalate_after_seconds IS NULL) = (cardinality(escalate_to) = 0)),
    CONSTRAINT notification_rules_escalate_after CHECK (escalate_after_seconds > 0)
);

CREATE TABLE notifications (
    id bigint GENERATED ALWAYS AS IDENTITY,
    org_id uuid NOT NULL,
    incident_id bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz NOT NULL DEFAULT now(),
    channel text NOT NULL,
    event text NOT NULL,
    task_id bigint,
    sent_at timestamptz,
    delivered_at timestamptz,
    CONSTRAINT notifications_pkey PRIMARY KEY (id),
    CONSTRAINT notifications_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT notifications_incident_id_fkey FOREIGN KEY (incident_id) REFERENCES incidents (id) ON DELETE CASCADE,
    CONSTRAINT notifications_event CHECK (event IN ('opened', 'escalated', 'reminder', 'closed')),
    CONSTRAINT notifications_sent CHECK ((task_id IS NULL) = (sent_at IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX notifications_once ON notifications (incident_id, channel, event) WHERE event <> 'reminder';

CREATE INDEX notifications_incident ON notifications (incident_id);

CREATE INDEX notifications_org ON notifications (org_id, id);

CREATE INDEX notifications_due ON notifications (due_at) WHERE task_id IS NULL;

CREATE INDEX notifications_sent ON notifications (org_id, channel, sent_at) WHERE task_id IS NOT NULL;

CREATE INDEX notifications_undelivered ON notifications (id) WHERE delivered_at IS NULL AND task_id IS NOT NULL;

CREATE TABLE approvals (
    id bigint NOT NULL,
    org_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    expires_at timestamptz NOT NULL,
    decided_at timestamptz,
    title text NOT NULL,
    role text NOT NULL,
    form jsonb,
    shown jsonb,
    decision text,
    decided_by text,
    reason text,
    answers jsonb,
    CONSTRAINT approvals_pkey PRIMARY KEY (id),
    CONSTRAINT approvals_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT approvals_task_id_fkey FOREIGN KEY (task_id) REFERENCES tasks (id) ON DELETE CASCADE,
    CONSTRAINT approvals_named CHECK (title <> '' AND role <> ''),
    CONSTRAINT approvals_decision CHECK (decision IN ('approved', 'rejected')),
    CONSTRAINT approvals_decided CHECK (num_nonnulls(decided_at, decision, decided_by) IN (0, 3))
);

CREATE INDEX approvals_org ON approvals (org_id, id);

CREATE INDEX approvals_open ON approvals (org_id, id) WHERE decided_at IS NULL;

CREATE UNIQUE INDEX approvals_task ON approvals (task_id, attempt);

CREATE TABLE approval_links (
    token_hash bytea NOT NULL,
    org_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    approval_id bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    recipient text NOT NULL,
    CONSTRAINT approval_links_pkey PRIMARY KEY (token_hash),
    CONSTRAINT approval_links_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT approval_links_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES approvals (id) ON DELETE CASCADE,
    CONSTRAINT approval_links_recipient CHECK (recipient <> '')
);

CREATE INDEX approval_links_approval ON approval_links (approval_id);

CREATE TABLE dispatches (
    task_id bigint NOT NULL,
    org_id uuid NOT NULL,
    attempt integer NOT NULL,
    sent integer NOT NULL DEFAULT 1,
    sent_at timestamptz NOT NULL DEFAULT now(),
    error text,
    CONSTRAINT dispatches_pkey PRIMARY KEY (task_id),
    CONSTRAINT dispatches_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT dispatches_sent CHECK (sent >= 1)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE orphan_files (
    dataset_version uuid NOT NULL,
    name text NOT NULL,
    org_id uuid NOT NULL,
    location text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    task_id bigint,
    attempt integer,
    replaced_at timestamptz,
    deleting_at timestamptz,
    CONSTRAINT orphan_files_pkey PRIMARY KEY (dataset_version, name),
    CONSTRAINT orphan_files_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT orphan_files_writer CHECK ((replaced_at IS NULL) = (task_id IS NOT NULL AND attempt IS NOT NULL))
);

CREATE TABLE task_inputs (
    task_id bigint NOT NULL,
    input_dataset_uuid uuid NOT NULL,
    input_partition_key text NOT NULL,
    input_version timestamptz NOT NULL,
    CONSTRAINT task_inputs_pkey PRIMARY KEY (task_id, input_dataset_uuid, input_partition_key),
    CONSTRAINT task_inputs_task_id_fkey FOREIGN KEY (task_id) REFERENCES tasks (id) ON DELETE CASCADE,
    CONSTRAINT task_inputs_input_dataset_uuid_fkey FOREIGN KEY (input_dataset_uuid)
        REFERENCES datasets (id) ON DELETE CASCADE
);

CREATE INDEX task_inputs_version ON task_inputs (input_dataset_uuid, input_partition_key, input_version);

CREATE TABLE dataset_freshness (
    dataset_uuid uuid NOT NULL,
    org_id uuid NOT NULL,
    max_age_seconds bigint,
    by_time text,
    timezone text NOT NULL,
    days text NOT NULL,
    due_at timestamptz NOT NULL,
    missed_at timestamptz,
    CONSTRAINT dataset_freshness_pkey PRIMARY KEY (dataset_uuid),
    CONSTRAINT dataset_freshness_dataset_uuid_fkey FOREIGN KEY (dataset_uuid)
        REFERENCES datasets (id) ON DELETE CASCADE,
    CONSTRAINT dataset_freshness_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT dataset_freshness_policy CHECK ((max_age_seconds IS NULL) <> (by_time IS NULL))
);

CREATE INDEX dataset_freshness_due ON dataset_freshness (org_id, due_at);

CREATE INDEX dataset_freshness_unreported ON dataset_freshness (due_at) WHERE missed_at IS NULL;

CREATE TABLE data_test_results (
    id bigint GENERATED ALWAYS AS IDENTITY,
    org_id uuid NOT NULL,
    subject text NOT NULL,
    dataset_uuid uuid,
    partition_key text NOT NULL DEFAULT '',
    task_id bigint NOT NULL,
    job_id bigint,
    attempt integer NOT NULL,
    tested_at timestamptz NOT NULL DEFAULT now(),
    number integer NOT NULL,
    test text NOT NULL,
    on_failure text NOT NULL,
    outcome text NOT NULL,
    rows bigint NOT NULL,
    failing_rows bigint NOT NULL,
    message text NOT NULL,
    sample_table text,
    published boolean NOT NULL,
    latest boolean NOT NULL DEFAULT true,
    CONSTRAINT data_test_results_pkey PRIMARY KEY (id),
    CONSTRAINT data_test_results_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT data_test_results_dataset_uuid_fkey FOREIGN KEY (dataset_uuid)
        REFERENCES datasets (id) ON DELETE CASCADE,
    CONSTRAINT data_test_results_on_failure CHECK (on_failure IN ('block', 'quarantine', 'warn')),
    CONSTRAINT data_test_results_outcome CHECK (outcome IN ('passed', 'warned', 'quarantined', 'blocked')),
    CONSTRAINT data_test_results_published CHECK (outcome <> 'blocked' OR NOT published)
);

CREATE INDEX data_test_results_failed ON data_test_results (org_id, id) WHERE latest AND outcome <> 'passed';

CREATE INDEX data_test_results_latest ON data_test_results (org_id, subject, partition_key) WHERE latest;

CREATE INDEX data_test_results_runs ON data_test_results (dataset_uuid, id) WHERE number = 0 AND published;

CREATE INDEX data_test_results_subject ON data_test_results (org_id, subject, id);

CREATE INDEX data_test_results_task ON data_test_results (task_id);

CREATE TABLE column_lineage (
    output_dataset_uuid uuid NOT NULL,
    output_version uuid NOT NULL,
    output_column text NOT NULL,
    input_dataset_uuid uuid NOT NULL,
    input_column text NOT NULL,
    definition_id uuid,
    CONSTRAINT column_lineage_pkey PRIMARY KEY (output_version, output_column, input_dataset_uuid, input_column),
    CONSTRAINT column_lineage_output_dataset_uuid_fkey FOREIGN KEY (output_dataset_uuid)
        REFERENCES datasets (id) ON DELETE CASCADE,
    CONSTRAINT column_lineage_output_version_fkey FOREIGN KEY (output_version)
        REFERENCES dataset_versions (id) ON DELETE CASCADE,
    CONSTRAINT column_lineage_input_dataset_uuid_fkey FOREIGN KEY (input_dataset_uuid)
        REFERENCES datasets (id) ON DELETE CASCADE,
    CONSTRAINT column_lineage_definition_id_fkey FOREIGN KEY (definition_id)
        REFERENCES job_definitions (id) ON DELETE SET NULL
);

CREATE INDEX column_lineage_definition ON column_lineage (definition_id);

CREATE INDEX column_lineage_input ON column_lineage (input_dataset_uuid, input_column);

CREATE INDEX column_lineage_output ON column_lineage (output_dataset_uuid);

CREATE TABLE operator_state (
    org_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    state_key text NOT NULL DEFAULT 'default',
    state jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT operator_state_pkey PRIMARY KEY (org_id, definition_id, state_key),
    CONSTRAINT operator_state_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs (id),
    CONSTRAINT operator_state_definition_id_fkey FOREIGN KEY (definition_id)
        REFERENCES job_definitions (id) ON DELETE CASCADE
);

CREATE INDEX operator_state_definition ON operator_state (definition_id);

CREATE TABLE table_refcounts (
    table_name text NOT NULL,
    org_id uuid NOT NULL DEFAULT '00000000-0000-4000-8000-000000000001',
    refcount integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    dropping_at timestamptz,
    CONSTRAINT table_refcounts_pkey PRIMARY KEY (table_name),
    CONSTRAINT table_refcounts_dropping CHECK (dropping_at IS NULL OR refcount <= 0)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX table_refcounts_unused ON table_refcounts (updated_at) WHERE refcount <= 0;

CREATE TABLE table_references (
    table_name text NOT NULL,
    owner reference_owner NOT NULL,
    owner_id bigint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    name text NOT NULL DEFAULT '',
    refs integer NOT NULL DEFAULT 1,
    job_id bigint,
    kept boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT table_references_pkey PRIMARY KEY (table_name, owner, owner_id, attempt, name),
    CONSTRAINT table_references_table_name_fkey FOREIGN KEY (table_name)
        REFERENCES table_refcounts (table_name) ON DELETE CASCADE,
    CONSTRAINT table_references_job_id_fkey FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT table_references_refs CHECK (refs >= 1),
    CONSTRAINT table_references_by_name CHECK ((owner = 'NAME') = (name <> '')),
    CONSTRAINT table_references_by_id CHECK ((owner = 'NAME') = (owner_id = 0)),
    CONSTRAINT table_references_by_attempt CHECK ((owner = 'ATTEMPT') = (attempt > 0) AND attempt >= 0),
    CONSTRAINT table_references_by_job CHECK (owner <> 'JOB' OR job_id IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX table_references_job ON table_references (job_id) WHERE job_id IS NOT NULL;

CREATE INDEX table_references_name ON table_references (name) WHERE owner = 'NAME';

CREATE INDEX table_references_open ON table_references (job_id) WHERE job_id IS NOT NULL AND NOT kept;

CREATE INDEX table_references_owner ON table_references (owner_id, attempt) WHERE owner <> 'NAME';

CREATE TABLE metric_counts (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind text NOT NULL,
    status text NOT NULL,
    worker_id bigint,
    bucket integer NOT NULL,
    count bigint NOT NULL,
    seconds double precision NOT NULL,
    CONSTRAINT metric_counts_pkey PRIMARY KEY (id)
);

CREATE TABLE table_sessions (
    id bigint NOT NULL,
    in_clickhouse boolean NOT NULL DEFAULT false,
    seen_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT table_sessions_pkey PRIMARY KEY (id)
);

-- Functions and triggers
CREATE OR REPLACE FUNCTION aaiclick_touch() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$;

CREATE TRIGGER touch BEFORE UPDATE ON jobs FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch();

CREATE TRIGGER touch BEFORE UPDATE ON queues FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch();

CREATE TRIGGER touch BEFORE UPDATE ON task_types FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch();

CREATE TRIGGER touch BEFORE UPDATE ON job_definitions FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch();

CREATE TRIGGER touch BEFORE UPDATE ON dag_current_versions FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch();

CREATE TRIGGER touch BEFORE UPDATE ON datasets FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch();

CREATE TRIGGER touch BEFORE UPDATE ON operator_state FOR EACH ROW
WHEN (OLD.updated_at IS NOT DISTINCT FROM NEW.updated_at) EXECUTE FUNCTION aaiclick_touch();

CREATE OR REPLACE FUNCTION aaiclick_delete_dependencies() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    DELETE FROM dependencies WHERE previous_id IN (SELECT id FROM gone);
    DELETE FROM dependencies WHERE next_id IN (SELECT id FROM gone);
    RETURN NULL;
END $$;

CREATE TRIGGER delete_dependencies AFTER DELETE ON tasks REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_delete_dependencies();

CREATE TRIGGER delete_dependencies AFTER DELETE ON groups REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_delete_dependencies();

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
END $$;

CREATE TRIGGER count_added AFTER INSERT ON table_references REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_count_references();

CREATE TRIGGER count_gone AFTER DELETE ON table_references REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_count_references();

CREATE TRIGGER count_changed AFTER UPDATE ON table_references REFERENCING NEW TABLE AS added OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_count_references();

CREATE OR REPLACE FUNCTION aaiclick_bucket(seconds float8) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT width_bucket(seconds, '{0.005,0.01,0.05,0.1,0.5,1,5,10,60,300,1800,3600,21600,86400}'::float8[]) $$;

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
END $$;

CREATE TRIGGER add_metric_counts AFTER DELETE ON jobs REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_add_metric_counts();

CREATE TRIGGER add_metric_counts AFTER DELETE ON tasks REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_add_metric_counts();

CREATE TRIGGER add_metric_counts AFTER DELETE ON task_attempts REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_add_metric_counts();

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
END $$;

CREATE TRIGGER add_reopened_counts AFTER UPDATE ON jobs FOR EACH ROW
WHEN (OLD.completed_at IS NOT NULL AND NEW.completed_at IS NULL) EXECUTE FUNCTION aaiclick_add_reopened_counts('job_reopened');

CREATE TRIGGER add_reopened_counts AFTER UPDATE ON tasks FOR EACH ROW
WHEN (OLD.completed_at IS NOT NULL AND NEW.completed_at IS NULL) EXECUTE FUNCTION aaiclick_add_reopened_counts('task_reopened');

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
END $$;

CREATE OR REPLACE FUNCTION aaiclick_update_source_status() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM aaiclick_set_source_status(NEW.definition_id, NEW.id, now()); RETURN NULL; END $$;

CREATE TRIGGER source_status AFTER UPDATE ON tasks FOR EACH ROW
WHEN (NEW.definition_id IS NOT NULL AND NEW.dedupe_key IS NULL AND OLD.status IS DISTINCT FROM NEW.status)
EXECUTE FUNCTION aaiclick_update_source_status();

CREATE OR REPLACE FUNCTION aaiclick_job_outcome(ended_id bigint) RETURNS jsonb LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ SELECT jsonb_build_object('job', jsonb_build_object('id', j.id::text, 'name', j.name, 'status', j.status,
    'error', j.error, 'results', coalesce((SELECT jsonb_agg(r.result ORDER BY r.id) FROM (
        SELECT t.id, t.result FROM tasks t
        WHERE t.job_id = j.id AND t.status = 'COMPLETED' AND t.added_by IS NULL AND t.result IS NOT NULL
          AND (t.trigger_rule IN ('failed', 'ended')) IS NOT TRUE
          AND NOT EXISTS (SELECT FROM dependencies d WHERE d.previous_id = t.id AND d.next_type < 'handler')
        ORDER BY t.id LIMIT 100) AS r), '[]')))
FROM jobs j WHERE j.id = ended_id $$;

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
    SELECT id FROM earlier WHERE NOT ended LIMIT 1 $$;

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
END $$;

CREATE TRIGGER wake_job_waits AFTER UPDATE ON jobs FOR EACH ROW
WHEN (NEW.has_waiters AND OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL)
EXECUTE FUNCTION aaiclick_wake_job_waits();

CREATE OR REPLACE FUNCTION log_path(task tasks) RETURNS text LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS
$$ SELECT w.log_directory || '/' || task.id || '.log' FROM workers w WHERE w.id = task.worker_id $$;

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
END $$;

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
END $$;

CREATE OR REPLACE FUNCTION aaiclick_serves_version(worker bigint, queue text, queues text[]) RETURNS boolean
LANGUAGE sql STABLE AS
$$ SELECT EXISTS (SELECT FROM workers w
        WHERE w.id = worker AND replace(w.code_version, ':', '_') = split_part(queue, ':', 3))
    AND (queues = '{}' OR substr(queue, length(split_part(queue, ':', 3)) + 18) = ANY (queues)) $$;

-- Row-level security: rows of the session's org
CREATE OR REPLACE FUNCTION aaiclick_org_id() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT nullif(current_setting('aaiclick.org_id', true), '')::uuid $$;

ALTER TABLE orgs ENABLE ROW LEVEL SECURITY;

ALTER TABLE queues ENABLE ROW LEVEL SECURITY;

ALTER TABLE queue_minutes ENABLE ROW LEVEL SECURITY;

ALTER TABLE task_types ENABLE ROW LEVEL SECURITY;

ALTER TABLE users ENABLE ROW LEVEL SECURITY;

ALTER TABLE org_roles ENABLE ROW LEVEL SECURITY;

ALTER TABLE org_role_memberships ENABLE ROW LEVEL SECURITY;

ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE org_secrets ENABLE ROW LEVEL SECURITY;

ALTER TABLE audit_log ENABLE ROW LEVEL SECURITY;

ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE ui_sessions ENABLE ROW LEVEL SECURITY;

ALTER TABLE dag_versions ENABLE ROW LEVEL SECURITY;

ALTER TABLE dag_current_versions ENABLE ROW LEVEL SECURITY;

ALTER TABLE job_definitions ENABLE ROW LEVEL SECURITY;

ALTER TABLE datasets ENABLE ROW LEVEL SECURITY;

ALTER TABLE dataset_versions ENABLE ROW LEVEL SECURITY;

ALTER TABLE dataset_partitions ENABLE ROW LEVEL SECURITY;

ALTER TABLE dag_version_datasets ENABLE ROW LEVEL SECURITY;

ALTER TABLE schedules ENABLE ROW LEVEL SECURITY;

ALTER TABLE job_functions ENABLE ROW LEVEL SECURITY;

ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE groups ENABLE ROW LEVEL SECURITY;

ALTER TABLE tasks ENABLE ROW LEVEL SECURITY;

ALTER TABLE result_cache ENABLE ROW LEVEL SECURITY;

ALTER TABLE rate_limits ENABLE ROW LEVEL SECURITY;

ALTER TABLE dependencies ENABLE ROW LEVEL SECURITY;

ALTER TABLE task_additions ENABLE ROW LEVEL SECURITY;

ALTER TABLE task_attempts ENABLE ROW LEVEL SECURITY;

ALTER TABLE workers ENABLE ROW LEVEL SECURITY;

ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;

ALTER TABLE incidents ENABLE ROW LEVEL SECURITY;

ALTER TABLE incident_occurrences ENABLE ROW LEVEL SECURITY;

ALTER TABLE notification_channels ENABLE ROW LEVEL SECURITY;

ALTER TABLE notification_rules ENABLE ROW LEVEL SECURITY;

ALTER TABLE notifications ENABLE ROW LEVEL SECURITY;

ALTER TABLE dispatches ENABLE ROW LEVEL SECURITY;

ALTER TABLE waits ENABLE ROW LEVEL SECURITY;

ALTER TABLE workflow_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE approvals ENABLE ROW LEVEL SECURITY;

ALTER TABLE approval_links ENABLE ROW LEVEL SECURITY;

ALTER TABLE orphan_files ENABLE ROW LEVEL SECURITY;

ALTER TABLE task_inputs ENABLE ROW LEVEL SECURITY;

ALTER TABLE dataset_freshness ENABLE ROW LEVEL SECURITY;

ALTER TABLE data_test_results ENABLE ROW LEVEL SECURITY;

ALTER TABLE column_lineage ENABLE ROW LEVEL SECURITY;

ALTER TABLE operator_state ENABLE ROW LEVEL SECURITY;

ALTER TABLE table_refcounts ENABLE ROW LEVEL SECURITY;

ALTER TABLE table_references ENABLE ROW LEVEL SECURITY;

ALTER TABLE metric_counts ENABLE ROW LEVEL SECURITY;

ALTER TABLE table_sessions ENABLE ROW LEVEL SECURITY;

CREATE POLICY org ON orgs USING (id = aaiclick_org_id());

CREATE POLICY org ON queues USING (org_id = aaiclick_org_id());

CREATE POLICY org ON queue_minutes USING (org_id = aaiclick_org_id());

CREATE POLICY org ON task_types USING (org_id = aaiclick_org_id());

CREATE POLICY org ON users USING (org_id = aaiclick_org_id());

CREATE POLICY org ON org_roles USING (org_id = aaiclick_org_id());

CREATE POLICY org ON org_role_memberships USING (EXISTS (SELECT FROM org_roles r WHERE r.id = role_id));

CREATE POLICY org ON api_keys USING (org_id = aaiclick_org_id());

CREATE POLICY org ON org_secrets USING (org_id = aaiclick_org_id());

CREATE POLICY org ON audit_log USING (org_id = aaiclick_org_id());

CREATE POLICY org ON idempotency_keys USING (org_id = aaiclick_org_id());

CREATE POLICY org ON dag_versions USING (org_id = aaiclick_org_id());

CREATE POLICY org ON dag_current_versions USING (org_id = aaiclick_org_id());

CREATE POLICY org ON job_definitions USING (org_id = aaiclick_org_id());

CREATE POLICY org ON datasets USING (org_id = aaiclick_org_id());

CREATE POLICY org ON dataset_versions USING (EXISTS (SELECT FROM datasets d WHERE d.id = dataset_uuid));

CREATE POLICY org ON dataset_partitions USING (EXISTS (SELECT FROM dataset_versions v WHERE v.id = dataset_version));

CREATE POLICY org ON dag_version_datasets USING (EXISTS (SELECT FROM dag_versions v WHERE v.id = dag_version_id));

CREATE POLICY org ON schedules USING (org_id = aaiclick_org_id());

CREATE POLICY org ON job_functions USING (org_id = aaiclick_org_id());

CREATE POLICY org ON jobs USING (org_id = aaiclick_org_id());

CREATE POLICY org ON groups USING (EXISTS (SELECT FROM jobs j WHERE j.id = job_id));

CREATE POLICY org ON tasks USING (org_id = aaiclick_org_id());

CREATE POLICY org ON rate_limits USING (org_id = aaiclick_org_id());

CREATE POLICY org ON result_cache USING (org_id = aaiclick_org_id());

CREATE POLICY org ON dependencies USING (EXISTS (SELECT FROM tasks t WHERE t.id = next_id) OR EXISTS (SELECT FROM groups g WHERE g.id = next_id));

CREATE POLICY org ON task_attempts USING (EXISTS (SELECT FROM tasks t WHERE t.id = task_id));

CREATE POLICY org ON task_additions USING (EXISTS (SELECT FROM tasks t WHERE t.id = task_id));

CREATE POLICY org ON table_references USING (EXISTS (SELECT FROM tasks t WHERE t.id = owner_id) OR EXISTS (SELECT FROM jobs j WHERE j.id = job_id));

CREATE POLICY org ON incidents USING (org_id = aaiclick_org_id());

CREATE POLICY org ON notification_channels USING (org_id = aaiclick_org_id());

CREATE POLICY org ON notification_rules USING (org_id = aaiclick_org_id());

CREATE POLICY org ON notifications USING (org_id = aaiclick_org_id());

CREATE POLICY org ON workers USING (org_id = aaiclick_org_id());

CREATE POLICY shared ON workers FOR SELECT USING (org_id IS NULL);

CREATE POLICY org ON outbox USING (org_id = aaiclick_org_id());

CREATE POLICY org ON dispatches USING (org_id = aaiclick_org_id());

CREATE POLICY org ON waits USING (org_id = aaiclick_org_id());

CREATE POLICY org ON workflow_events USING (org_id = aaiclick_org_id());

CREATE POLICY org ON approvals USING (org_id = aaiclick_org_id());

CREATE POLICY org ON approval_links USING (org_id = aaiclick_org_id());

CREATE POLICY org ON task_inputs USING (EXISTS (SELECT FROM tasks t WHERE t.id = task_id));

CREATE POLICY org ON dataset_freshness USING (org_id = aaiclick_org_id());

CREATE POLICY org ON data_test_results USING (org_id = aaiclick_org_id());

CREATE POLICY org ON column_lineage USING (EXISTS (SELECT FROM datasets d WHERE d.id = output_dataset_uuid));

CREATE POLICY org ON operator_state USING (org_id = aaiclick_org_id());

INSERT INTO orgs (id, name, slug) VALUES ('00000000-0000-4000-8000-000000000001', 'Default', 'default');

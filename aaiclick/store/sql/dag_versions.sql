-- name: lock_dag
-- Serialise deploys of one DAG.
SELECT pg_advisory_xact_lock(hashtextextended('dag:' || $1::uuid || ':' || $2, 0))

-- name: insert_dag_version
INSERT INTO dag_versions (id, org_id, dag_name, yaml_hash, yaml, created_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (org_id, dag_name, yaml_hash) DO NOTHING
RETURNING id

-- name: list_dag_versions
-- Versions of a DAG (NULL: of all), newest first.
SELECT v.id, v.dag_name, v.yaml_hash, v.created_at, v.ready_at, c.dag_version_id IS NOT NULL AS serving, c.serving_since,
    c.paused_at, v.fill_job_id, j.status::text AS fill_status
FROM dag_versions v
LEFT JOIN jobs j ON j.id = v.fill_job_id
LEFT JOIN dag_current_versions c ON c.org_id = v.org_id AND c.dag_name = v.dag_name AND c.dag_version_id = v.id
WHERE v.org_id = $1 AND ($2::text IS NULL OR v.dag_name = $2)
ORDER BY v.dag_name, v.created_at DESC, v.id

-- name: find_dag_version
-- A version with its YAML; by default the serving one.
SELECT v.id, v.yaml_hash, v.yaml, v.deploy_ticket
FROM dag_versions v
WHERE v.org_id = $1 AND v.dag_name = $2
  AND v.id = coalesce($3, (SELECT c.dag_version_id FROM dag_current_versions c WHERE c.org_id = $1 AND c.dag_name = $2))

-- name: ensure_dataset
-- The dataset of an output of a definition; a new one has a default name until its version serves.
INSERT INTO datasets (id, org_id, name, producer_dag_name, producer_job_name, producer_output_index, storage)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb)
ON CONFLICT ON CONSTRAINT datasets_producer_key DO UPDATE SET updated_at = datasets.updated_at
RETURNING id

-- name: ensure_dataset_version
-- The generation of a dataset with a configuration; `is_new`: it was inserted.
WITH inserted AS (
    INSERT INTO dataset_versions (id, dataset_uuid, storage_location, config_hash, dag_version_id, range_start, range_end)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]')) DO NOTHING
    RETURNING id
)
SELECT id, true AS is_new FROM inserted
UNION ALL
SELECT id, false FROM dataset_versions
WHERE dataset_uuid = $2 AND config_hash = $4 AND range_start IS NOT DISTINCT FROM $6 AND range_end IS NOT DISTINCT FROM $7
  AND NOT EXISTS (SELECT FROM inserted)

-- name: find_existing_outputs
-- Those of the outputs $6 of a DAG (definitions $3, indexes $4) that have a filled generation with the hash $5.
SELECT k.output FROM unnest($3::text[], $4::int[], $5::text[], $6::text[]) AS k (job, nth, hash, output)
JOIN datasets d ON d.org_id = $1 AND d.producer_dag_name = $2 AND d.producer_job_name = k.job AND d.producer_output_index = k.nth
JOIN dataset_versions v ON v.dataset_uuid = d.id AND v.config_hash = k.hash
JOIN dag_versions m ON m.id = v.dag_version_id AND m.ready_at IS NOT NULL

-- name: list_outputs_built_for
-- Outputs with generations that were created for the version $1.
SELECT d.producer_job_name, d.producer_output_index
FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid WHERE v.dag_version_id = $1

-- name: set_version_dataset
-- Set the generation of a dataset in a DAG version.
INSERT INTO dag_version_datasets (dag_version_id, dataset_uuid, dataset_version) VALUES ($1, $2, $3)
ON CONFLICT (dag_version_id, dataset_uuid) DO NOTHING

-- name: insert_definition
INSERT INTO job_definitions (
    id, org_id, name, dag_name, dag_version_id, activation, runtime, operator, source, bootstrap, execution_strategy,
    idle_timeout, config, config_hash, spec, input_datasets, output_datasets, update_strategy, unique_key, scaling,
    timeout_seconds, heartbeat_timeout_seconds, max_attempts, status, rejected_datasets, reference_datasets
) VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10::jsonb, $11, $12, $13::jsonb, $14, $15::jsonb, $16, $17, $18, $19, $20::jsonb,
    $21, $22, $23, $24, $25, $26
)

-- name: set_serving_version
-- Make a version the serving one of its DAG.
INSERT INTO dag_current_versions (org_id, dag_name, dag_version_id) VALUES ($1, $2, $3)
ON CONFLICT (org_id, dag_name) DO UPDATE SET dag_version_id = excluded.dag_version_id, updated_at = now(),
    serving_since = CASE WHEN dag_current_versions.dag_version_id = excluded.dag_version_id
        THEN dag_current_versions.serving_since ELSE now() END

-- name: name_datasets
-- Set names, and the storage of the version $6.
UPDATE datasets d SET name = n.name, storage = coalesce(f.spec -> 'outputs' -> n.output_index -> 'storage', '{}')
FROM unnest($3::text[], $4::int[], $5::text[]) AS n (job_name, output_index, name)
JOIN job_definitions f ON f.dag_version_id = $6 AND f.name = n.job_name
WHERE d.org_id = $1 AND d.producer_dag_name = $2 AND d.producer_job_name = n.job_name
  AND d.producer_output_index = n.output_index

-- name: unname_datasets
-- Reset the names of the DAG's datasets to their default names, before `name_datasets` assigns the new ones.
UPDATE datasets
SET name = producer_dag_name || '.' || producer_job_name || '.' || producer_output_index, updated_at = now()
WHERE org_id = $1 AND producer_dag_name = $2

-- name: delete_declared_lineage
-- Delete the column lineage of the generations of the version $1 that was declared by a definition of any version.
DELETE FROM column_lineage l USING dag_version_datasets p, datasets s, job_definitions d
WHERE p.dag_version_id = $1 AND l.output_version = p.dataset_version AND s.id = p.dataset_uuid AND d.id = l.definition_id
  AND d.operator <> 'sql' AND d.spec -> 'outputs' -> s.producer_output_index -> 'lineage' IS NOT NULL

-- name: insert_declared_lineage
-- Insert the column lineage that the definitions of the version $1 declare; tasks derive that of SQL. Sources are
-- written as input.column.
INSERT INTO column_lineage (output_dataset_uuid, output_version, output_column, input_dataset_uuid, input_column, definition_id)
SELECT p.dataset_uuid, p.dataset_version, l.output_column, d.input_datasets[i.nth]::uuid, r.source[2], d.id
FROM job_definitions d
CROSS JOIN LATERAL unnest(d.output_datasets) WITH ORDINALITY AS o (id, nth)
JOIN dag_version_datasets p ON p.dag_version_id = d.dag_version_id AND p.dataset_uuid = o.id::uuid
CROSS JOIN LATERAL jsonb_each(d.spec -> 'outputs' -> (o.nth - 1)::int -> 'lineage') AS l (output_column, sources)
CROSS JOIN LATERAL jsonb_array_elements_text(l.sources) AS e (source)
CROSS JOIN LATERAL regexp_match(e.source, '^(.*)\.([^.]*)$') AS r (source)
JOIN LATERAL jsonb_array_elements(d.spec -> 'inputs') WITH ORDINALITY AS i (input, nth)
    ON coalesce(i.input ->> 'output', i.input ->> 'dataset') = r.source[1]
WHERE d.dag_version_id = $1 AND d.operator <> 'sql'
ON CONFLICT DO NOTHING

-- name: schedule_definitions
-- Schedule the definitions of the serving version, and only these. An unchanged schedule keeps its next run, so that a
-- run that is due during a deploy is neither lost nor started twice.
UPDATE job_definitions d SET next_run_at = n.next_run_at, updated_at = now()
FROM (
    SELECT o.id, CASE WHEN o.dag_version_id = $3 THEN coalesce((
        SELECT min(p.next_run_at) FROM job_definitions p
        WHERE p.org_id = $1 AND p.dag_name = $2 AND p.name = o.name AND p.source = o.source), u.next_run_at) END AS next_run_at
    FROM job_definitions o
    LEFT JOIN unnest($4::text[], $5::timestamptz[]) AS u (name, next_run_at) ON u.name = o.name
    WHERE o.org_id = $1 AND o.dag_name = $2) AS n
WHERE d.id = n.id AND d.next_run_at IS DISTINCT FROM n.next_run_at

-- name: pause_new_types
-- Pause new task types of a paused DAG, after a version with more definitions begins to serve.
INSERT INTO task_types (org_id, name, paused_at)
SELECT d.org_id, d.dag_name || '.' || d.name, c.paused_at
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 AND c.dag_name = $2 AND c.paused_at IS NOT NULL
ON CONFLICT (org_id, name) DO UPDATE SET paused_at = coalesce(task_types.paused_at, excluded.paused_at)

-- name: get_version_state
SELECT v.ready_at, v.fill_job_id, v.serving_at_fill, v.deploy_ticket, j.status::text AS fill_status, j.error AS fill_error
FROM dag_versions v LEFT JOIN jobs j ON j.id = v.fill_job_id WHERE v.id = $1

-- name: request_serving
-- Record a request to serve the version $1, with the highest deploy ticket of the DAG; under the DAG's lock.
UPDATE dag_versions v SET deploy_ticket = 1 + (
    SELECT max(o.deploy_ticket) FROM dag_versions o WHERE o.org_id = v.org_id AND o.dag_name = v.dag_name)
WHERE v.id = $1

-- name: mark_version_ready
UPDATE dag_versions SET ready_at = coalesce(ready_at, now()) WHERE id = $1

-- name: set_fill_job
UPDATE dag_versions SET fill_job_id = $2, serving_at_fill = $3 WHERE id = $1

-- name: list_stale_definitions
-- Definitions of the version $1 with outputs older than their inputs, with one input to start them with. $2: only
-- those with outputs that were created for the version. $3: also those that look up to date.
SELECT DISTINCT ON (d.id) d.id, d.name, i.dataset, i.generation
FROM job_definitions d
CROSS JOIN LATERAL (
    SELECT min(v.ticket) AS ticket, bool_and(v.dag_version_id IS NOT DISTINCT FROM $1) AS built_for
    FROM dag_version_datasets p JOIN dataset_versions v ON v.id = p.dataset_version
    WHERE p.dag_version_id = $1 AND p.dataset_uuid = ANY (d.output_datasets::uuid[])) AS o
CROSS JOIN LATERAL (
    SELECT s.id AS dataset, v.id AS generation, v.ticket
    FROM datasets s
    JOIN dag_version_datasets p ON p.dataset_uuid = s.id AND p.dag_version_id =
        CASE WHEN s.producer_dag_name = d.dag_name THEN $1 ELSE (
            SELECT c.dag_version_id FROM dag_current_versions c
            WHERE c.org_id = d.org_id AND c.dag_name = s.producer_dag_name) END
    JOIN dataset_versions v ON v.id = p.dataset_version
    WHERE s.id = ANY (d.input_datasets::uuid[]) AND s.org_id = d.org_id) AS i
WHERE d.dag_version_id = $1 AND d.activation = 'reactive' AND o.ticket IS NOT NULL AND i.ticket > 0
  AND (NOT $2 OR o.built_for) AND (i.ticket > o.ticket OR ($3 AND d.operator IN ('sql', 'python')))
ORDER BY d.id, i.ticket DESC

-- name: list_unfilled_sources
-- Cron sources of the version $1 with empty outputs that were created for it: one run fills them.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime, d.operator,
    (d.scaling ->> 'max_concurrency')::int AS max_concurrency
FROM job_definitions d
WHERE d.dag_version_id = $1 AND d.activation = 'source' AND d.source ->> 'kind' = 'cron' AND EXISTS (
    SELECT FROM dag_version_datasets p JOIN dataset_versions v ON v.id = p.dataset_version
    WHERE p.dag_version_id = $1 AND p.dataset_uuid = ANY (d.output_datasets::uuid[])
      AND v.dag_version_id = $1 AND v.ticket = 0)
ORDER BY d.name

-- name: find_obsolete_tasks
-- Unfinished tasks of the version $1 that produce nothing for the serving version $2; searched in unfinished jobs.
SELECT t.id FROM job_definitions d JOIN jobs j ON j.org_id = d.org_id AND j.completed_at IS NULL CROSS JOIN LATERAL (
    SELECT t.id FROM tasks t
    WHERE t.job_id = j.id AND t.definition_id IS NOT DISTINCT FROM d.id AND t.completed_at IS NULL) AS t
WHERE d.dag_version_id = $1 AND NOT EXISTS (
    SELECT FROM dag_version_datasets p JOIN dag_version_datasets q ON q.dataset_version = p.dataset_version
    WHERE p.dag_version_id = $1 AND p.dataset_uuid = ANY (d.output_datasets::uuid[]) AND q.dag_version_id = $2)
ORDER BY t.id

-- name: find_datasets_by_name
-- Datasets by name, for references from other DAGs: those that one of the roles $3 may read (NULL: all).
SELECT id, name, producer_dag_name FROM datasets WHERE org_id = $1 AND name = ANY ($2::text[])
  AND ($3::text[] IS NULL OR read_roles && $3::text[])

-- name: list_serving_datasets
-- Datasets of the serving version of a DAG, in one snapshot.
SELECT d.id, d.name, d.producer_job_name, d.producer_output_index, d.read_roles, v.id AS version, v.storage_location,
    v.config_hash, v.created_at
FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE c.org_id = $1 AND c.dag_name = $2
ORDER BY d.name

-- name: list_serving_definitions
-- Definitions of the serving version of the DAG $2, optionally only the one named $3.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_name || '.' || d.name AS type, d.dag_version_id, d.activation, d.source,
    d.execution_strategy, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime, d.operator,
    (d.scaling ->> 'max_concurrency')::int AS max_concurrency, c.paused_at IS NOT NULL AS paused
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 AND c.dag_name = $2 AND ($3::text IS NULL OR d.name = $3)
ORDER BY d.name

-- name: find_jobs_by_keys
-- Jobs named $2 with one of the idempotency keys $3.
SELECT id, status::text, idempotency_key AS key FROM jobs
WHERE org_id = $1 AND name = $2 AND idempotency_key IS NOT NULL AND idempotency_key = ANY ($3::text[])

-- name: find_tasks_by_dedupe_keys
-- Tasks of the definition $1 with one of the dedupe keys $2.
SELECT job_id AS id, status::text, dedupe_key AS key FROM tasks
WHERE definition_id = $1 AND dedupe_key IS NOT NULL AND dedupe_key = ANY ($2::text[])

-- name: load_job_ids
-- The jobs of the tasks $1.
SELECT id, job_id FROM tasks WHERE id = ANY ($1::bigint[])

-- name: find_partition_readers
-- Jobs with tasks that have read the partitions $3 of the dataset $2 after they changed ($4), for the definition $1 or
-- one of the same name with the same outputs.
SELECT DISTINCT ON (u.key) u.key, t.job_id AS id, t.status::text
FROM unnest($3::text[], $4::timestamptz[]) AS u (key, changed)
JOIN task_inputs i ON i.input_dataset_uuid = $2 AND i.input_partition_key = u.key AND i.input_version >= u.changed
JOIN tasks t ON t.id = i.task_id
JOIN job_definitions d ON d.id = t.definition_id
JOIN job_definitions o ON o.id = $1
WHERE t.status = 'COMPLETED' AND d.org_id = o.org_id AND d.dag_name = o.dag_name AND d.name = o.name AND d.config_hash = o.config_hash
ORDER BY u.key, i.input_version DESC

-- name: list_output_generations
-- Output generations of the definition $1.
SELECT p.dataset_version FROM job_definitions d
JOIN dag_version_datasets p ON p.dag_version_id = d.dag_version_id AND p.dataset_uuid = ANY (d.output_datasets::uuid[])
WHERE d.id = $1 ORDER BY p.dataset_version

-- name: lock_dag_versions
-- Lock all versions of the DAG $2: no job of it can be added until the transaction ends.
SELECT id FROM dag_versions WHERE org_id = $1 AND dag_name = $2 ORDER BY id FOR UPDATE

-- name: list_unfinished_dag_jobs
-- Up to $3 unfinished jobs of the DAG $2, or with unfinished tasks of it.
SELECT j.id FROM jobs j
WHERE j.org_id = $1 AND j.completed_at IS NULL AND (
    EXISTS (SELECT FROM dag_versions v WHERE v.id = j.dag_version_id AND v.dag_name = $2)
    OR EXISTS (
        SELECT FROM tasks t JOIN job_definitions d ON d.id = t.definition_id
        WHERE t.job_id = j.id AND t.completed_at IS NULL AND d.dag_name = $2))
ORDER BY j.id LIMIT $3

-- name: list_reading_dags
-- Other DAGs with a serving version that reads datasets of the DAG $2.
SELECT DISTINCT f.dag_name FROM dag_current_versions c JOIN job_definitions f ON f.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 AND c.dag_name <> $2 AND EXISTS (
    SELECT FROM datasets d WHERE d.org_id = $1 AND d.producer_dag_name = $2
      AND d.id::text = ANY (coalesce(f.input_datasets, '{}') || coalesce(f.reference_datasets, '{}')))
ORDER BY f.dag_name

-- name: release_dag_tables
-- Register the tables of the datasets of the DAG $2 without a reference, so that the cleanup loop drops them.
INSERT INTO table_refcounts (table_name, org_id)
SELECT DISTINCT v.storage_location, d.org_id FROM datasets d JOIN dataset_versions v ON v.dataset_uuid = d.id
WHERE d.org_id = $1 AND d.producer_dag_name = $2 AND v.storage_location ~ '^dataset_[0-9a-f]{32}$'
ON CONFLICT DO NOTHING

-- name: release_dag_files
-- Make the files of the datasets of the DAG $2 orphan files, so that the cleanup loop deletes them; it leaves files of
-- other programs.
INSERT INTO orphan_files (dataset_version, name, org_id, location, replaced_at)
SELECT v.id, f.file ->> 'name', d.org_id, v.storage_location, now()
FROM datasets d JOIN dataset_versions v ON v.dataset_uuid = d.id CROSS JOIN LATERAL jsonb_array_elements(v.files) AS f (file)
WHERE d.org_id = $1 AND d.producer_dag_name = $2 AND v.storage_location LIKE '%/' || v.id || '/'
ON CONFLICT DO NOTHING

-- name: delete_dag_jobs
-- Delete the jobs of the DAG $2.
DELETE FROM jobs j USING dag_versions v WHERE v.org_id = $1 AND v.dag_name = $2 AND j.dag_version_id = v.id

-- name: stop_serving
DELETE FROM dag_current_versions WHERE org_id = $1 AND dag_name = $2

-- name: delete_dag_versions
-- Delete all versions of the DAG $2 with their definitions.
DELETE FROM dag_versions WHERE org_id = $1 AND dag_name = $2

-- name: delete_dag_datasets
-- Delete the datasets of the DAG $2 with their generations, policies, test results and lineage.
DELETE FROM datasets WHERE org_id = $1 AND producer_dag_name = $2

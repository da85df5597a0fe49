-- name: lock_generation
-- Serialise updates of one generation.
SELECT pg_advisory_xact_lock(hashtextextended('generation:' || $1::uuid, 0))

-- name: lock_generations
-- Serialise the row counts of generations, so that each transaction sees the partitions that others recorded.
SELECT FROM dataset_versions WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE

-- name: find_overlapping_version
-- Another version with the configuration of $1, its own location and a range that overlaps $2 to $3.
SELECT r.range_start, r.range_end FROM dataset_versions v
JOIN dataset_versions r ON r.dataset_uuid = v.dataset_uuid AND r.config_hash = v.config_hash
    AND r.storage_location <> v.storage_location
WHERE v.id = $1
  AND numrange(r.range_start::numeric, r.range_end::numeric, '[]') && numrange($2::bigint::numeric, $3::bigint::numeric, '[]')
  AND (r.range_start IS DISTINCT FROM $2 OR r.range_end IS DISTINCT FROM $3)
LIMIT 1

-- name: register_dataset_version
-- Insert a version like $1 with the range $4 to $5, at the location $3 (NULL: that of $1); no row if it exists.
INSERT INTO dataset_versions (id, dataset_uuid, storage_location, config_hash, schema_hash, range_start, range_end)
SELECT $2, v.dataset_uuid, coalesce($3::text, v.storage_location), v.config_hash, v.schema_hash, $4::bigint, $5::bigint
FROM dataset_versions v WHERE v.id = $1
ON CONFLICT (dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]')) DO NOTHING
RETURNING id

-- name: find_registered_version
-- The version with the configuration of $1 and the range $2 to $3.
SELECT r.id, r.storage_location FROM dataset_versions v
JOIN dataset_versions r ON r.dataset_uuid = v.dataset_uuid AND r.config_hash = v.config_hash
WHERE v.id = $1 AND r.range_start IS NOT DISTINCT FROM $2::bigint AND r.range_end IS NOT DISTINCT FROM $3::bigint

-- name: load_reader_roles
-- Platform role and org roles of a user of the org $1; no row: unknown user.
SELECT u.role, u.disabled_at IS NOT NULL AS disabled,
    coalesce(array_agg(r.slug) FILTER (WHERE r.slug IS NOT NULL), '{}') AS roles
FROM users u
LEFT JOIN org_role_memberships m ON m.user_id = u.id
LEFT JOIN org_roles r ON r.id = m.role_id AND r.org_id = u.org_id
WHERE u.org_id = $1 AND u.external_id = $2 GROUP BY u.id

-- name: list_visible_datasets
-- The datasets that are served in the org $1: those that one of the roles $2 may read (NULL: all), of the names $3 (NULL: any).
SELECT d.id, d.name, d.producer_dag_name AS dag, d.producer_job_name AS job, d.read_roles, v.id AS version,
    v.storage_location, v.columns, v.files, v.rows, v.updated_at
FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid AND d.producer_dag_name = c.dag_name
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE c.org_id = $1 AND ($2::text[] IS NULL OR d.read_roles && $2::text[])
  AND ($3::text[] IS NULL OR d.name = ANY ($3::text[]))
ORDER BY d.name

-- name: may_read_version
-- Whether one of the roles $3 of the org $2 may read all inputs and outputs of the version $1 of a DAG, and the current
-- datasets named $4. Deleted datasets are not readable. The text of a DAG does not name the datasets of rejected rows.
SELECT NOT EXISTS (
    SELECT FROM (
        SELECT unnest(coalesce(f.input_datasets, '{}') || coalesce(f.output_datasets, '{}')
            || coalesce(f.reference_datasets, '{}')) AS id FROM job_definitions f
        WHERE f.dag_version_id = $1
        UNION SELECT p.dataset_uuid::text FROM dag_version_datasets p WHERE p.dag_version_id = $1 AND NOT EXISTS (
            SELECT FROM job_definitions f
            WHERE f.dag_version_id = $1 AND p.dataset_uuid::text = ANY (f.rejected_datasets))
    ) AS named LEFT JOIN datasets d ON d.id::text = named.id AND d.org_id = $2
    WHERE d.id IS NULL OR NOT d.read_roles && $3::text[]
) AND NOT EXISTS (
    SELECT FROM datasets d WHERE d.org_id = $2 AND d.name = ANY ($4::text[]) AND NOT d.read_roles && $3::text[]
)

-- name: load_task_visibility
-- Visibility of those of the tasks $1 of the org $2 that belong to a definition, directly or by the task that added
-- them: the outputs, by their names in the definition, that one of the roles $3 may read, and whether these may read
-- all inputs and outputs. Tasks of deleted definitions are not readable.
WITH RECURSIVE origin AS (
    SELECT t.id, t.definition_id, t.added_by, true AS own FROM unnest($1::bigint[]) AS u (id) CROSS JOIN LATERAL (
        SELECT t.id, t.definition_id, t.added_by FROM tasks t WHERE t.id = u.id AND t.org_id = $2 OFFSET 0) AS t
    UNION ALL
    SELECT o.id, t.definition_id, t.added_by, false FROM origin o CROSS JOIN LATERAL (
        SELECT t.definition_id, t.added_by FROM tasks t WHERE t.id = o.added_by OFFSET 0) AS t
    WHERE o.definition_id IS NULL
),
told AS MATERIALIZED (
    SELECT f.id,
        ARRAY(
            SELECT f.spec -> 'outputs' -> (o.nth - 1)::int ->> 'name'
            FROM unnest(f.output_datasets) WITH ORDINALITY AS o (id, nth)
            JOIN datasets d ON d.id::text = o.id AND d.org_id = f.org_id
            WHERE d.read_roles && $3::text[]) AS outputs,
        NOT EXISTS (
            SELECT FROM unnest(coalesce(f.input_datasets, '{}') || coalesce(f.output_datasets, '{}')
            || coalesce(f.reference_datasets, '{}')) AS n (id)
            LEFT JOIN datasets d ON d.id::text = n.id AND d.org_id = f.org_id
            WHERE d.id IS NULL OR NOT d.read_roles && $3::text[]) AS everything
    FROM job_definitions f
    WHERE f.id = ANY (ARRAY(SELECT DISTINCT o.definition_id FROM origin o WHERE o.definition_id IS NOT NULL)) AND f.org_id = $2
)
SELECT o.id, CASE WHEN o.own AND told.id IS NOT NULL THEN told.outputs ELSE '{}' END AS outputs,
    coalesce(told.everything, false) AS everything
FROM origin o LEFT JOIN told ON told.id = o.definition_id WHERE o.definition_id IS NOT NULL

-- name: list_generations
-- Generations of a dataset, newest first, and the DAG version that serves each.
SELECT v.id, v.created_at, v.updated_at, v.schema_hash, v.range_start, v.range_end, EXISTS (
    SELECT FROM dag_version_datasets p JOIN dag_current_versions c ON c.dag_version_id = p.dag_version_id
    WHERE p.dataset_version = v.id) AS serving
FROM dataset_versions v WHERE v.dataset_uuid = $1 ORDER BY v.created_at DESC, v.id

-- name: list_dataset_runs
-- Latest tasks that updated a dataset, of all versions of its producer.
SELECT t.id, t.job_id, t.status::text, t.outputs, t.partitions, t.started_at, t.completed_at, t.error
FROM datasets s JOIN job_definitions d ON d.org_id = s.org_id AND d.dag_name = s.producer_dag_name
    AND d.name = s.producer_job_name
JOIN tasks t ON t.definition_id = d.id
WHERE s.id = $1 ORDER BY t.id DESC LIMIT $2

-- name: find_unknown_roles
-- Those of the slugs $2 that are not roles of the org $1.
SELECT named.slug FROM unnest($2::text[]) AS named (slug)
WHERE NOT EXISTS (SELECT FROM org_roles r WHERE r.org_id = $1 AND r.slug = named.slug) ORDER BY named.slug

-- name: set_read_roles
UPDATE datasets SET read_roles = $3::text[], updated_at = now() WHERE org_id = $1 AND name = $2 RETURNING id

-- name: list_serving_edges
-- Input and output datasets of all serving definitions.
SELECT d.dag_name, d.name AS job, coalesce(d.input_datasets, '{}') AS inputs,
    coalesce(d.output_datasets, '{}') || array_remove(coalesce(d.rejected_datasets, '{}'), NULL) AS outputs
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id WHERE c.org_id = $1

-- name: list_column_edges
-- Column lineage among the datasets $1, of their serving generations.
SELECT l.output_dataset_uuid, l.output_column, l.input_dataset_uuid, l.input_column
FROM datasets s
JOIN dag_current_versions c ON c.org_id = s.org_id AND c.dag_name = s.producer_dag_name
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = s.id
JOIN column_lineage l ON l.output_version = p.dataset_version
WHERE s.id = ANY ($1::uuid[]) AND l.input_dataset_uuid = ANY ($1::uuid[]) ORDER BY 1, 2, 3, 4

-- name: find_producer
-- The definition that produces the dataset $1 in the serving version, and an input to start it with.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.activation, d.max_attempts, d.timeout_seconds,
    d.heartbeat_timeout_seconds, d.runtime,
    d.operator, (d.scaling ->> 'max_concurrency')::int AS max_concurrency, p.dataset_version, i.dataset, i.generation
FROM datasets s
JOIN dag_current_versions c ON c.org_id = s.org_id AND c.dag_name = s.producer_dag_name
JOIN job_definitions d ON d.dag_version_id = c.dag_version_id AND d.name = s.producer_job_name
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = s.id
LEFT JOIN LATERAL (
    SELECT n.id AS dataset, q.dataset_version AS generation
    FROM datasets n JOIN dag_current_versions k ON k.org_id = n.org_id AND k.dag_name = n.producer_dag_name
    JOIN dag_version_datasets q ON q.dag_version_id = k.dag_version_id AND q.dataset_uuid = n.id
    WHERE n.id = ANY (d.input_datasets::uuid[]) ORDER BY n.id LIMIT 1) AS i ON true
WHERE s.id = $1

-- name: clear_inputs_hash
-- Clear the inputs hash of the generation $1, so that it is computed again.
UPDATE dataset_partitions SET inputs_hash = NULL WHERE dataset_version = $1

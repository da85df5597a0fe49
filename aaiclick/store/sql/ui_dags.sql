-- name: list_dags
-- Serving DAGs of the org $1, at most $2 after $3 of them.
SELECT c.dag_name, c.dag_version_id, c.serving_since, c.paused_at, v.yaml_hash,
    (SELECT count(*) FROM dag_versions o WHERE o.org_id = $1 AND o.dag_name = c.dag_name) AS versions,
    (SELECT count(*) FROM job_definitions d WHERE d.dag_version_id = c.dag_version_id) AS definitions,
    r.id AS run_id, r.status::text AS run_status, r.created_at AS run_at
FROM dag_current_versions c JOIN dag_versions v ON v.id = c.dag_version_id
LEFT JOIN LATERAL (
    SELECT j.id, j.status, j.created_at FROM dag_versions o CROSS JOIN LATERAL (
        SELECT j.id, j.status, j.created_at FROM jobs j WHERE j.dag_version_id = o.id ORDER BY j.id DESC LIMIT 1) AS j
    WHERE o.org_id = c.org_id AND o.dag_name = c.dag_name ORDER BY j.id DESC LIMIT 1
) AS r ON true
WHERE c.org_id = $1 ORDER BY c.dag_name LIMIT $2 OFFSET $3

-- name: list_failed_deploys
-- The last failed deploy of each DAG of the org $1 (of the DAG $2, if given), unless a later deploy serves; at most $3,
-- newest first.
SELECT * FROM (
    SELECT DISTINCT ON (v.dag_name) v.dag_name, v.yaml_hash, j.id, j.status::text, j.error, j.completed_at,
        c.dag_version_id IS NOT NULL AS serving
    FROM dag_versions v
    JOIN jobs j ON j.id = v.fill_job_id AND j.status IN ('FAILED', 'CANCELLED')
    LEFT JOIN dag_current_versions c ON c.org_id = v.org_id AND c.dag_name = v.dag_name
    WHERE v.org_id = $1 AND v.ready_at IS NULL AND ($2::text IS NULL OR v.dag_name = $2)
      AND j.completed_at > coalesce(c.serving_since, '-infinity')
    ORDER BY v.dag_name, j.completed_at DESC) AS failed
ORDER BY completed_at DESC LIMIT $3

-- name: list_version_definitions
SELECT id, name, activation, operator, runtime, source, execution_strategy, input_datasets, output_datasets,
    update_strategy, status::text, next_run_at, last_event_at, last_heartbeat
FROM job_definitions WHERE dag_version_id = $1 ORDER BY name

-- name: list_dag_runs
-- The last $3 jobs of the versions $2 of the org $1, newest first.
SELECT r.* FROM unnest($2::uuid[]) AS v (id) CROSS JOIN LATERAL (
    SELECT j.id, j.name, j.status::text, j.created_at, j.started_at, j.completed_at, j.paused_at, j.total_tasks,
        j.open_tasks, j.failed_tasks, j.cancelled_tasks, j.dag_version_id
    FROM jobs j WHERE j.dag_version_id = v.id AND j.org_id = $1 ORDER BY j.id DESC LIMIT $3
) AS r ORDER BY r.id DESC LIMIT $3

-- name: find_dag_name
SELECT dag_name FROM dag_versions WHERE id = $1

-- name: list_dag_sources
-- Sources of serving versions in the org $1, at most $2 after $3 of them; the last run may be of any version of the
-- DAG.
SELECT d.id, d.name, d.dag_name, d.source, d.status::text, d.next_run_at, d.last_event_at, d.last_heartbeat,
    c.paused_at, r.id AS run_id, r.status::text AS run_status, r.created_at AS run_at
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
LEFT JOIN LATERAL (
    SELECT j.id, j.status, j.created_at FROM job_definitions o CROSS JOIN LATERAL (
        SELECT j.id, j.status, j.created_at FROM jobs j WHERE j.definition_id = o.id ORDER BY j.id DESC LIMIT 1) AS j
    WHERE o.org_id = d.org_id AND o.dag_name = d.dag_name AND o.name = d.name ORDER BY j.id DESC LIMIT 1
) AS r ON true
WHERE c.org_id = $1 AND d.activation = 'source' ORDER BY d.next_run_at NULLS LAST, d.dag_name, d.name LIMIT $2 OFFSET $3

-- name: list_datasets
-- Served datasets of the org $1 that one of the roles $2 may read (NULL: all); at most $3 (NULL: all) after $4 of them.
SELECT d.id, d.name, d.producer_dag_name AS dag, d.producer_job_name AS job, d.read_roles, v.id AS version,
    v.storage_location, v.columns, v.files, v.rows, v.updated_at, v.created_at,
    (SELECT count(*) FROM dataset_versions o WHERE o.dataset_uuid = d.id) AS versions
FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid AND d.producer_dag_name = c.dag_name
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE c.org_id = $1 AND ($2::text[] IS NULL OR d.read_roles && $2::text[])
ORDER BY d.name LIMIT $3 OFFSET $4

-- name: find_dags
-- At most $3 serving DAGs of the org $1 with names that contain $2.
SELECT dag_name FROM dag_current_versions WHERE org_id = $1 AND strpos(lower(dag_name), lower($2)) > 0
ORDER BY dag_name LIMIT $3

-- name: find_datasets
-- At most $4 served datasets of the org $1 that one of the roles $2 may read (NULL: all), with names that contain $3.
SELECT d.id, d.name FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid AND d.producer_dag_name = c.dag_name
WHERE c.org_id = $1 AND ($2::text[] IS NULL OR d.read_roles && $2::text[]) AND strpos(lower(d.name), lower($3)) > 0
ORDER BY d.name LIMIT $4

-- name: list_dataset_versions
SELECT id, created_at, storage_location, config_hash, schema_hash, range_start, range_end
FROM dataset_versions WHERE dataset_uuid = $1 ORDER BY created_at DESC, id LIMIT $2

-- name: list_lineage_definitions
SELECT d.id, d.name, d.dag_name, d.operator, d.status::text, d.input_datasets, d.output_datasets
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
WHERE c.org_id = $1 ORDER BY d.dag_name, d.name LIMIT 2000

-- name: list_column_lineage
-- Column lineage of the serving generation of the dataset $1.
SELECT l.output_column, l.input_column, d.id AS input_id, d.name AS input_name
FROM datasets s
JOIN dag_current_versions c ON c.org_id = s.org_id AND c.dag_name = s.producer_dag_name
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = s.id
JOIN column_lineage l ON l.output_version = p.dataset_version
JOIN datasets d ON d.id = l.input_dataset_uuid
WHERE s.id = $1 ORDER BY 1, 4, 2 LIMIT 1000

-- name: list_dataset_edges
-- Pairs of the tasks $1, at most $2: the definition of the second reads a dataset that the definition of the first
-- produces.
WITH units AS MATERIALIZED (
    SELECT t.id, d.id AS definition_id, d.input_datasets, d.output_datasets
    FROM tasks t JOIN job_definitions d ON d.id = t.definition_id WHERE t.id = ANY ($1::bigint[])
)
SELECT a.id AS previous_id, b.id AS next_id FROM units a JOIN units b ON a.output_datasets && b.input_datasets
WHERE a.definition_id <> b.definition_id LIMIT $2

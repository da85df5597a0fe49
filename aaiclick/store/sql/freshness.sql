-- name: list_freshness_datasets
-- The datasets of the serving version of the DAG $2 of the org $1, with their last update.
SELECT d.id, d.producer_job_name, d.producer_output_index, v.updated_at, now() AS now
FROM dag_current_versions c JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid JOIN dataset_versions v ON v.id = p.dataset_version
WHERE c.org_id = $1 AND c.dag_name = $2 ORDER BY d.id

-- name: delete_freshness
DELETE FROM dataset_freshness WHERE dataset_uuid IN (
    SELECT id FROM datasets WHERE org_id = $1 AND producer_dag_name = $2)

-- name: insert_freshness
INSERT INTO dataset_freshness (dataset_uuid, org_id, max_age_seconds, by_time, timezone, days, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: list_updated_freshness
-- Policies of the datasets that serve one of the generations $1, which were updated in this transaction.
SELECT f.dataset_uuid, f.max_age_seconds, f.by_time, f.timezone, f.days, v.updated_at
FROM dataset_versions v JOIN dataset_freshness f ON f.dataset_uuid = v.dataset_uuid
JOIN datasets d ON d.id = v.dataset_uuid
JOIN dag_current_versions c ON c.org_id = d.org_id AND c.dag_name = d.producer_dag_name
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = d.id AND p.dataset_version = v.id
WHERE v.id = ANY ($1::uuid[]) ORDER BY f.dataset_uuid

-- name: set_freshness_due
-- The next update of the dataset $1 is due at $2. Whether it is late is decided again by `take_late_datasets`.
UPDATE dataset_freshness SET due_at = greatest(due_at, $2), missed_at = NULL WHERE dataset_uuid = $1

-- name: take_late_datasets
-- Mark up to $1 datasets that have become late since the last pass; their incidents are opened in this transaction.
UPDATE dataset_freshness f SET missed_at = coalesce($2::timestamptz, now())
FROM datasets d WHERE d.id = f.dataset_uuid AND f.dataset_uuid = ANY (ARRAY(
    SELECT dataset_uuid FROM dataset_freshness WHERE missed_at IS NULL AND due_at <= coalesce($2::timestamptz, now())
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING f.org_id, f.dataset_uuid, d.producer_dag_name AS dag, d.producer_job_name AS definition,
    d.producer_output_index AS number, f.due_at, f.max_age_seconds

-- name: list_freshness
-- Datasets of the org $1 with a policy that the roles $2 (NULL: all) may read, those that are due first: all, the one
-- named $3, or those due before $4; only those after the dataset $7, due at $6, if given.
SELECT f.dataset_uuid, d.name, d.producer_dag_name AS dag, d.producer_job_name AS job, f.max_age_seconds, f.by_time,
    f.timezone, f.days, v.updated_at, f.due_at, now() AS now
FROM dataset_freshness f JOIN datasets d ON d.id = f.dataset_uuid
JOIN dag_current_versions c ON c.org_id = d.org_id AND c.dag_name = d.producer_dag_name
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = d.id
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE f.org_id = $1 AND f.due_at < coalesce($4::timestamptz, 'infinity') AND ($2::text[] IS NULL OR d.read_roles && $2)
  AND ($3::text IS NULL OR d.name = $3)
  AND f.due_at >= coalesce($6::timestamptz, '-infinity')
  AND ($6::timestamptz IS NULL OR (f.due_at, f.dataset_uuid) > ($6, $7::uuid))
ORDER BY f.due_at, f.dataset_uuid LIMIT $5

-- name: list_definition_runs
-- Serving definitions of the org $1, each with its last $2 tasks, newest first.
SELECT d.id AS definition_id, d.dag_name AS dag, d.name AS job, d.activation, coalesce(d.input_datasets, '{}') AS inputs,
    coalesce(d.output_datasets, '{}') AS outputs, d.next_run_at, c.paused_at, t.id, t.status::text, t.created_at,
    t.started_at, t.completed_at, t.error
FROM dag_current_versions c JOIN job_definitions d ON d.dag_version_id = c.dag_version_id
LEFT JOIN LATERAL (
    SELECT t.id, t.status, t.created_at, t.started_at, t.completed_at, t.error FROM tasks t
    WHERE t.definition_id = d.id ORDER BY t.id DESC LIMIT $2) AS t ON true
WHERE c.org_id = $1 ORDER BY d.id, t.id DESC

-- name: count_overdue_jobs
SELECT count(*) FROM jobs WHERE completed_at IS NULL AND due_at <= now()

-- name: count_late_datasets
SELECT count(*) FROM dataset_freshness WHERE due_at <= now()

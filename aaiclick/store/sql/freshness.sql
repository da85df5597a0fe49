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
-- named $3, or those due before $4; only those after the dataset $7, due at $6, if given. Reads the index in the order of
-- due times and stops after $5 rows.
SELECT f.dataset_uuid, d.name, d.dag, d.job, f.max_age_seconds, f.by_time, f.timezone, f.days, v.updated_at, f.due_at, now() AS now
FROM dataset_freshness f
CROSS JOIN LATERAL (
    SELECT d.name, d.producer_dag_name AS dag, d.producer_job_name AS job, d.read_roles FROM datasets d
    WHERE d.id = f.dataset_uuid OFFSET 0) AS d
CROSS JOIN LATERAL (
    SELECT c.dag_version_id FROM dag_current_versions c WHERE c.org_id = f.org_id AND c.dag_name = d.dag OFFSET 0) AS c
CROSS JOIN LATERAL (
    SELECT p.dataset_version FROM dag_version_datasets p
    WHERE p.dag_version_id = c.dag_version_id AND p.dataset_uuid = f.dataset_uuid OFFSET 0) AS p
CROSS JOIN LATERAL (SELECT v.updated_at FROM dataset_versions v WHERE v.id = p.dataset_version OFFSET 0) AS v
WHERE f.org_id = $1 AND f.due_at < coalesce($4::timestamptz, 'infinity') AND ($2::text[] IS NULL OR d.read_roles && $2)
  AND ($3::text IS NULL OR f.dataset_uuid = (SELECT n.id FROM datasets n WHERE n.org_id = $1 AND n.name = $3))
  AND f.due_at >= coalesce($6::timestamptz, '-infinity')
  AND ($6::timestamptz IS NULL OR (f.due_at, f.dataset_uuid) > ($6, $7::uuid))
ORDER BY f.due_at, f.dataset_uuid LIMIT $5

-- name: list_upstream_runs
-- Serving definitions of the org $1 that write the datasets $2, and all that these are computed from; each with its last
-- $3 tasks, newest first.
WITH RECURSIVE upstream AS (
    SELECT u.id FROM unnest($2::uuid[]) AS u (id)
    UNION
    SELECT i.id::uuid FROM upstream u
    CROSS JOIN LATERAL (
        SELECT d.producer_dag_name AS dag, d.producer_job_name AS job FROM datasets d
        WHERE d.id = u.id AND d.org_id = $1 OFFSET 0) AS d
    CROSS JOIN LATERAL (
        SELECT c.dag_version_id FROM dag_current_versions c WHERE c.org_id = $1 AND c.dag_name = d.dag OFFSET 0) AS c
    CROSS JOIN LATERAL (
        SELECT j.input_datasets FROM job_definitions j
        WHERE j.dag_version_id = c.dag_version_id AND j.name = d.job OFFSET 0) AS j
    CROSS JOIN LATERAL unnest(j.input_datasets) AS i (id)
),
producers AS MATERIALIZED (
    SELECT DISTINCT d.producer_dag_name AS dag, d.producer_job_name AS job FROM upstream u
    CROSS JOIN LATERAL (
        SELECT d.producer_dag_name, d.producer_job_name FROM datasets d WHERE d.id = u.id AND d.org_id = $1 OFFSET 0) AS d
)
SELECT j.id AS definition_id, p.dag, p.job, j.activation, coalesce(j.input_datasets, '{}') AS inputs,
    coalesce(j.output_datasets, '{}') AS outputs, j.next_run_at, c.paused_at, t.id, t.status::text, t.created_at,
    t.started_at, t.completed_at, t.error
FROM producers p
CROSS JOIN LATERAL (
    SELECT c.dag_version_id, c.paused_at FROM dag_current_versions c
    WHERE c.org_id = $1 AND c.dag_name = p.dag OFFSET 0) AS c
CROSS JOIN LATERAL (
    SELECT j.id, j.activation, j.input_datasets, j.output_datasets, j.next_run_at FROM job_definitions j
    WHERE j.dag_version_id = c.dag_version_id AND j.name = p.job OFFSET 0) AS j
LEFT JOIN LATERAL (
    SELECT t.id, t.status, t.created_at, t.started_at, t.completed_at, t.error FROM tasks t
    WHERE t.definition_id = j.id ORDER BY t.id DESC LIMIT $3) AS t ON true
ORDER BY j.id, t.id DESC

-- name: list_dataset_names
-- The names of those of the datasets $3 of the org $1 that the roles $2 (NULL: all) may read.
SELECT id::text, name FROM datasets WHERE org_id = $1 AND id = ANY ($3::uuid[]) AND ($2::text[] IS NULL OR read_roles && $2)

-- name: list_orgs_with_policies
SELECT o.id FROM orgs o WHERE EXISTS (SELECT FROM dataset_freshness f WHERE f.org_id = o.id) ORDER BY o.id

-- name: get_forecast_end
-- The end of the time for which updates in the org $1 are predicted: $2 seconds from now, or from the last scheduled start.
SELECT $2::float8 * interval '1 second' + greatest(now(), (
    SELECT j.next_run_at FROM job_definitions j WHERE j.org_id = $1 AND j.next_run_at IS NOT NULL
    ORDER BY j.next_run_at DESC LIMIT 1))

-- name: count_overdue_jobs
SELECT count(*) FROM jobs WHERE completed_at IS NULL AND due_at <= now()

-- name: count_late_datasets
-- Of all orgs, by the index of each.
SELECT coalesce(sum(f.late), 0)::bigint FROM orgs o
CROSS JOIN LATERAL (SELECT count(*) AS late FROM dataset_freshness f WHERE f.org_id = o.id AND f.due_at <= now()) AS f

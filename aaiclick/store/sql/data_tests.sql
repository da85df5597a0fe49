-- name: insert_test_results
-- Insert the results $1 (a JSON array) of data tests; those of earlier updates of the same partitions are no longer the
-- latest. A result refers to a dataset only if the task's definition writes it.
WITH given AS MATERIALIZED (
    SELECT t.org_id, t.job_id, g.*, coalesce(d.dag_name || '.' || nullif(g.output, ''), t.type) AS subject,
        CASE WHEN g.dataset::text = ANY (d.output_datasets) THEN g.dataset END AS dataset_uuid
    FROM jsonb_to_recordset($1::jsonb) AS g (
        task_id bigint, attempt int, output text, dataset uuid, partition text, number int, test text, on_failure text,
        outcome text, rows bigint, failing_rows bigint, message text, sample text, published boolean)
    JOIN tasks t ON t.id = g.task_id LEFT JOIN job_definitions d ON d.id = t.definition_id
),
replaced AS (
    UPDATE data_test_results r SET latest = false
    FROM (SELECT DISTINCT org_id, subject, partition, dataset_uuid IS NULL AS is_plain FROM given) AS g
    WHERE r.latest AND r.org_id = g.org_id AND r.subject = g.subject AND r.partition_key = g.partition
      AND (r.dataset_uuid IS NULL) = g.is_plain  -- a task outside of a DAG may have any type
)
INSERT INTO data_test_results (
    org_id, subject, dataset_uuid, partition_key, task_id, job_id, attempt, number, test, on_failure, outcome, rows,
    failing_rows, message, sample_table, published)
SELECT org_id, subject, dataset_uuid, partition, task_id, job_id, attempt, number, test, on_failure, outcome, rows,
    failing_rows, message, sample, published
FROM given ORDER BY task_id, output, partition, number

-- name: hold_samples
-- Reference the tables $3 that the attempt $2 of the task $1 holds by the task, like tables of its result.
INSERT INTO table_references (table_name, owner, owner_id, job_id)
SELECT r.table_name, 'RESULT', t.id, t.job_id
FROM table_references r JOIN tasks t ON t.id = r.owner_id
WHERE r.owner = 'ATTEMPT' AND r.owner_id = $1 AND r.attempt = $2 AND r.table_name = ANY ($3::text[])
ORDER BY r.table_name ON CONFLICT DO NOTHING

-- name: list_latest_tests
-- The latest results of data tests of the org $1 before the id $2, newest first, that the roles $3 (NULL: all) may see.
SELECT {data_test_results.*}, (SELECT s.name FROM datasets s WHERE s.id = dataset_uuid) AS dataset FROM data_test_results
WHERE org_id = $1 AND latest AND id < $2 AND ($3::text[] IS NULL OR dataset_uuid IS NULL
    OR EXISTS (SELECT FROM datasets s WHERE s.id = dataset_uuid AND s.read_roles && $3))
ORDER BY id DESC LIMIT $4

-- name: list_tests
-- Like list_latest_tests, with earlier results.
SELECT {data_test_results.*}, (SELECT s.name FROM datasets s WHERE s.id = dataset_uuid) AS dataset FROM data_test_results
WHERE org_id = $1 AND id < $2 AND ($3::text[] IS NULL OR dataset_uuid IS NULL
    OR EXISTS (SELECT FROM datasets s WHERE s.id = dataset_uuid AND s.read_roles && $3))
ORDER BY id DESC LIMIT $4

-- name: list_failed_tests
-- Like list_latest_tests, only those that did not pass.
SELECT {data_test_results.*}, (SELECT s.name FROM datasets s WHERE s.id = dataset_uuid) AS dataset FROM data_test_results
WHERE org_id = $1 AND latest AND outcome <> 'passed' AND id < $2 AND ($3::text[] IS NULL OR dataset_uuid IS NULL
    OR EXISTS (SELECT FROM datasets s WHERE s.id = dataset_uuid AND s.read_roles && $3))
ORDER BY id DESC LIMIT $4

-- name: list_subject_tests
-- The history of the data tests of a dataset or DAG.OUTPUT $5 of the org $1; with $6 only those that did not pass.
SELECT {data_test_results.*}, (SELECT s.name FROM datasets s WHERE s.id = dataset_uuid) AS dataset FROM data_test_results
WHERE org_id = $1 AND subject = coalesce((
    SELECT r.subject FROM data_test_results r JOIN datasets s ON s.id = r.dataset_uuid
    WHERE s.org_id = $1 AND s.name = $5 ORDER BY r.id DESC LIMIT 1), $5) AND (NOT $6::boolean OR outcome <> 'passed') AND id < $2 AND ($3::text[] IS NULL OR dataset_uuid IS NULL
    OR EXISTS (SELECT FROM datasets s WHERE s.id = dataset_uuid AND s.read_roles && $3))
ORDER BY id DESC LIMIT $4

-- name: list_task_tests
-- Results of the data tests of the task $5 of the org $1.
SELECT {data_test_results.*}, (SELECT s.name FROM datasets s WHERE s.id = dataset_uuid) AS dataset FROM data_test_results
WHERE org_id = $1 AND task_id = $5 AND id < $2 AND ($3::text[] IS NULL OR dataset_uuid IS NULL
    OR EXISTS (SELECT FROM datasets s WHERE s.id = dataset_uuid AND s.read_roles && $3))
ORDER BY id DESC LIMIT $4

-- name: list_existing_tasks
-- Those of the tasks $1 that were not deleted.
SELECT id FROM tasks WHERE id = ANY ($1::bigint[])

-- name: delete_old_test_results
-- Delete up to $2 results of data tests older than $1 seconds, except the latest of each partition; returns how many.
WITH old AS MATERIALIZED (
    SELECT id FROM data_test_results
    WHERE NOT latest AND tested_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM data_test_results WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING 1)
SELECT count(*) FROM gone

-- name: count_blocked_tests
SELECT count(*) FROM data_test_results WHERE latest AND outcome <> 'passed' AND outcome = 'blocked'

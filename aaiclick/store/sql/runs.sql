-- name: get_definition
-- A definition, for its tasks. Operator state belongs to the first definition with the same outputs: a version that
-- leaves a definition unchanged continues with it.
SELECT d.id, d.org_id, d.dag_name, d.name, d.dag_version_id, d.activation, d.operator, d.execution_strategy,
    d.update_strategy, d.unique_key, d.config_hash, d.spec, (
        SELECT h.id FROM job_definitions h
        WHERE h.org_id = d.org_id AND h.dag_name = d.dag_name AND h.name = d.name AND h.config_hash = d.config_hash
          AND (SELECT array_agg(p.dataset_version ORDER BY p.dataset_version) FROM dag_version_datasets p
               WHERE p.dag_version_id = h.dag_version_id AND p.dataset_uuid = ANY (h.output_datasets::uuid[]))
            IS NOT DISTINCT FROM
              (SELECT array_agg(p.dataset_version ORDER BY p.dataset_version) FROM dag_version_datasets p
               WHERE p.dag_version_id = d.dag_version_id AND p.dataset_uuid = ANY (d.output_datasets::uuid[]))
        ORDER BY h.created_at, h.id LIMIT 1) AS memory
FROM job_definitions d WHERE d.id = $1

-- name: list_definition_datasets
-- Input and output datasets of the definition $1, in the generations of its version; those of another DAG in the
-- serving ones. With the outputs come the numbers of rows of their last updates, if they have data tests.
SELECT n.role, n.nth, s.id AS dataset, s.name, v.id AS generation, v.storage_location, v.columns, v.files,
    v.ticket, v.updated_at, v.publishes, CASE n.role WHEN 'output' THEN ARRAY(
        SELECT r.rows FROM data_test_results r WHERE r.dataset_uuid = s.id AND r.number = 0 AND r.published
        ORDER BY r.id DESC LIMIT 30) ELSE '{}' END AS recent_rows
FROM job_definitions d
CROSS JOIN LATERAL (
    SELECT 'input' AS role, u.id, u.nth FROM unnest(d.input_datasets::uuid[]) WITH ORDINALITY AS u (id, nth)
    UNION ALL
    SELECT 'output', u.id, u.nth FROM unnest(d.output_datasets::uuid[]) WITH ORDINALITY AS u (id, nth)
    UNION ALL
    SELECT 'rejected', u.id, u.nth FROM unnest(d.rejected_datasets::uuid[]) WITH ORDINALITY AS u (id, nth)
    UNION ALL
    SELECT 'reference', u.id, u.nth FROM unnest(d.reference_datasets::uuid[]) WITH ORDINALITY AS u (id, nth)) AS n
JOIN datasets s ON s.id = n.id AND s.org_id = d.org_id
JOIN dag_version_datasets p ON p.dataset_uuid = s.id AND p.dag_version_id =
    CASE WHEN s.producer_dag_name = d.dag_name THEN d.dag_version_id ELSE (
        SELECT c.dag_version_id FROM dag_current_versions c
        WHERE c.org_id = d.org_id AND c.dag_name = s.producer_dag_name) END
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE d.id = $1 ORDER BY n.role, n.nth

-- name: take_ticket
SELECT nextval('dataset_tickets')

-- name: get_last_ticket
-- The last ticket taken; 0 if none was.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM dataset_tickets

-- name: load_partitions
-- Partitions of the generation $1, all or those named by $2.
SELECT partition_key, ticket, recorded_ticket, rows, digest, inputs_hash, task_id, updated_at FROM dataset_partitions
WHERE dataset_version = $1 AND ($2::text[] IS NULL OR partition_key = ANY ($2::text[])) ORDER BY partition_key

-- name: is_generation_of
-- Whether $1 is a generation of one of the datasets $2.
SELECT EXISTS (SELECT FROM dataset_versions WHERE id = $1 AND dataset_uuid = ANY ($2::uuid[]))

-- name: load_input_digest
-- A digest of the content of the generation $1: of the digests of its partitions, if all have one; otherwise its
-- ticket.
SELECT CASE WHEN count(*) > 0 AND count(*) = count(p.digest)
    THEN md5(string_agg(p.partition_key || ':' || p.digest, ',' ORDER BY p.partition_key))
    ELSE (SELECT v.ticket::text FROM dataset_versions v WHERE v.id = $1) END
FROM dataset_partitions p WHERE p.dataset_version = $1 AND p.recorded_ticket > 0

-- name: get_operator_state
SELECT state FROM operator_state WHERE org_id = $1 AND definition_id = $2 AND state_key = $3

-- name: put_operator_state
INSERT INTO operator_state (org_id, definition_id, state_key, state) VALUES ($1, $2, $3, $4::jsonb)
ON CONFLICT (org_id, definition_id, state_key) DO UPDATE SET state = excluded.state, updated_at = now()

-- name: mark_partition_update
-- Record that the partition $2 of the generation $1 gets the rows of the ticket $3; no row if it has newer ones.
INSERT INTO dataset_partitions (dataset_version, partition_key, ticket) VALUES ($1, $2, $3)
ON CONFLICT (dataset_version, partition_key) DO UPDATE SET ticket = excluded.ticket
WHERE dataset_partitions.ticket <= excluded.ticket
RETURNING partition_key

-- name: get_publish_intent
-- The counted publications of the generation $1, and the announced one; `live`: its attempt still holds its lease.
SELECT v.publishes, v.publishing_table AS table, v.publishing_lease AS lease, EXISTS (
    SELECT FROM tasks t WHERE t.id = v.publishing_task AND t.lease_token = v.publishing_lease) AS live
FROM dataset_versions v WHERE v.id = $1

-- name: set_publish_intent
-- Announce that the lease $4 of the task $3 publishes the staged table $2 in the generation $1.
UPDATE dataset_versions SET publishing_table = $2, publishing_task = $3, publishing_lease = $4 WHERE id = $1

-- name: settle_publish_intent
-- Count the announced publication of the generation $1 after its attempt has ended.
UPDATE dataset_versions SET publishes = publishes + 1, publishing_table = NULL, publishing_task = NULL, publishing_lease = NULL
WHERE id = $1

-- name: count_publish
-- Count a publication of the generation $1 if $2 were counted before and the lease $3 has announced it (none: NULL);
-- no row otherwise.
UPDATE dataset_versions SET publishes = publishes + 1, publishing_table = NULL, publishing_task = NULL, publishing_lease = NULL
WHERE id = $1 AND publishes = $2 AND publishing_lease IS NOT DISTINCT FROM $3::uuid RETURNING publishes

-- name: set_generation_files
-- Set the files of the generation $1: the previous ones, without those that are replaced (mode $2: all, those of the
-- slice $3, or none) and those named by $4, and with the new ones $5; its columns are $6. Removed files become orphan
-- files, added ones cease to be.
WITH before AS MATERIALIZED (
    SELECT f.file ->> 'name' AS name FROM dataset_versions v CROSS JOIN LATERAL jsonb_array_elements(v.files) AS f (file)
    WHERE v.id = $1
),
pointed AS (
    UPDATE dataset_versions SET columns = $6, files = coalesce((
        SELECT jsonb_agg(f.file ORDER BY f.nth) FROM jsonb_array_elements(files) WITH ORDINALITY AS f (file, nth)
        WHERE f.file ->> 'name' <> ALL ($4::text[])
          AND CASE $2::text WHEN 'append' THEN true WHEN 'slice' THEN f.file ->> 'slice' <> $3 ELSE false END), '[]') || $5::jsonb
    WHERE id = $1
    RETURNING id, dataset_uuid, storage_location,
        ARRAY(SELECT f.file ->> 'name' FROM jsonb_array_elements(files) AS f (file)) AS names
),
bound AS (
    DELETE FROM orphan_files l USING pointed p WHERE l.dataset_version = $1 AND l.name = ANY (p.names)
)
INSERT INTO orphan_files (dataset_version, name, org_id, location, replaced_at)
SELECT p.id, b.name, d.org_id, p.storage_location, now()
FROM pointed p JOIN datasets d ON d.id = p.dataset_uuid JOIN before b ON b.name <> ALL (p.names)

-- name: set_external_files
-- Set the files of the generation $1 to those written by another program at $2; its columns are $3.
UPDATE dataset_versions SET files = $2::jsonb, columns = $3::jsonb WHERE id = $1

-- name: load_locations
-- Locations of the generation $1 and of the registered ranges of its dataset with the same configuration.
SELECT DISTINCT ON (r.range_start, r.range_end, r.storage_location) r.storage_location
FROM dataset_versions v JOIN dataset_versions r ON r.dataset_uuid = v.dataset_uuid AND r.config_hash = v.config_hash
WHERE v.id = $1 AND (r.id = v.id OR r.storage_location <> v.storage_location)
ORDER BY r.range_start NULLS FIRST, r.range_end, r.storage_location

-- name: set_task_outputs
UPDATE tasks SET outputs = $2::jsonb, input_versions = $3::jsonb, updated_at = now() WHERE id = $1

-- name: insert_task_inputs
INSERT INTO task_inputs (task_id, input_dataset_uuid, input_partition_key, input_version)
SELECT $1, dataset, partition, version FROM unnest($2::uuid[], $3::text[], $4::timestamptz[]) AS u (dataset, partition, version)
ON CONFLICT DO NOTHING

-- name: insert_lineage
-- Insert the column lineage of the generation $1.
INSERT INTO column_lineage (output_dataset_uuid, output_version, output_column, input_dataset_uuid, input_column, definition_id)
SELECT v.dataset_uuid, v.id, u.output_column, u.input_dataset, u.input_column, $5
FROM dataset_versions v
CROSS JOIN unnest($2::text[], $3::uuid[], $4::text[]) AS u (output_column, input_dataset, input_column)
WHERE v.id = $1
ON CONFLICT DO NOTHING

-- name: delete_lineage
DELETE FROM column_lineage WHERE output_version = $1

-- name: record_partitions
-- Record the update of the partitions $3 of the generation $1 with the ticket $2 by the task $7, unless a newer one is
-- recorded.
INSERT INTO dataset_partitions AS p
    (dataset_version, partition_key, ticket, recorded_ticket, rows, digest, inputs_hash, task_id, updated_at)
SELECT $1, u.key, $2, $2, u.rows, u.digest, u.inputs_hash, $7, now()
FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[]) AS u (key, rows, digest, inputs_hash)
ON CONFLICT (dataset_version, partition_key) DO UPDATE SET ticket = excluded.ticket,
    recorded_ticket = excluded.recorded_ticket, rows = excluded.rows, digest = excluded.digest,
    inputs_hash = excluded.inputs_hash, task_id = excluded.task_id, updated_at = excluded.updated_at
WHERE p.ticket <= excluded.ticket

-- name: delete_other_partitions
-- Delete the partitions other than $3 of the generation $1, after a full update with the ticket $2.
DELETE FROM dataset_partitions WHERE dataset_version = $1 AND ticket <= $2 AND partition_key <> ALL ($3::text[])

-- name: record_generation
-- Record the update of the generation $1 with the ticket $2: its rows are the sum over its partitions, or $5 where
-- these are not counted. Of an update that was overtaken only the partitions count.
UPDATE dataset_versions v SET
    columns = CASE WHEN v.ticket <= $2 THEN $3::jsonb ELSE v.columns END,
    schema_hash = CASE WHEN v.ticket <= $2 THEN $4 ELSE v.schema_hash END,
    rows = CASE WHEN $5::bigint IS NULL
        THEN (SELECT sum(p.rows) FROM dataset_partitions p WHERE p.dataset_version = $1)
        WHEN v.ticket <= $2 THEN $5 ELSE v.rows END,
    ticket = greatest(v.ticket, $2), updated_at = now()
WHERE v.id = $1

-- name: register_file
-- Record the file $2 of the generation $1 before the attempt ($3, $4) writes it, so that it is never lost.
INSERT INTO orphan_files (dataset_version, name, org_id, location, task_id, attempt)
SELECT v.id, $2, d.org_id, v.storage_location, $3, $4
FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid WHERE v.id = $1
ON CONFLICT (dataset_version, name) DO NOTHING

-- name: mark_orphan_files
-- Mark up to $1 orphan files for deletion that had no reader or writer for $2 seconds. Files that were marked $3
-- seconds ago are marked again: the deletion failed.
--
-- A reader reads the list of files during its attempt, or (a query) less than $2 seconds ago. So a replaced file is
-- needed while an attempt lives that began before the replacement became visible.
UPDATE orphan_files SET deleting_at = now()
WHERE ctid = ANY (ARRAY(
    SELECT l.ctid FROM orphan_files l
    WHERE coalesce(l.replaced_at, l.written_at) <= now() - $2::float8 * interval '1 second'
      AND (l.deleting_at IS NULL OR l.deleting_at <= now() - $3::float8 * interval '1 second')
      AND NOT EXISTS (
        SELECT FROM tasks t WHERE t.status IN ('CLAIMED', 'RUNNING') AND CASE WHEN l.replaced_at IS NULL
            THEN t.id = l.task_id AND t.attempt = l.attempt
            ELSE t.org_id = l.org_id AND t.definition_id IS NOT NULL
                AND t.claimed_at <= l.replaced_at + $2::float8 * interval '1 second' END)
      AND NOT EXISTS (
        SELECT FROM dataset_versions v CROSS JOIN LATERAL jsonb_array_elements(v.files) AS f (file)
        WHERE v.id = l.dataset_version AND f.file ->> 'name' = l.name)
    ORDER BY l.deleting_at NULLS FIRST, l.written_at LIMIT $1 FOR UPDATE OF l SKIP LOCKED))
RETURNING dataset_version, location, name

-- name: delete_orphan_files
-- Delete the rows of the deleted files $2 of the generations $1.
DELETE FROM orphan_files l USING unnest($1::uuid[], $2::text[]) AS g (dataset_version, name)
WHERE l.dataset_version = g.dataset_version AND l.name = g.name AND l.deleting_at IS NOT NULL

-- name: lock_for_backup
-- Wait for publications and drops in progress, and block new ones.
LOCK TABLE dataset_partitions, table_refcounts IN SHARE MODE

-- name: export_snapshot
SELECT pg_export_snapshot()

-- name: has_work
-- Whether the database contains jobs, queue items, DAGs or organisations of users.
SELECT EXISTS (SELECT FROM jobs) OR EXISTS (SELECT FROM tasks) OR EXISTS (SELECT FROM dag_versions)
    OR EXISTS (SELECT FROM orgs OFFSET 1)

-- Tasks of the definition $1 of the org $2. What is the same of all, thousands come at once: $3 to $12. Of each: its id, its job,
-- the key that makes a second one impossible, what it is told ($5 is how that begins), its partition.
INSERT INTO tasks (id, org_id, job_id, definition_id, dedupe_key, type, entrypoint, kwargs, queue, max_attempts,
    timeout_seconds, lease_seconds, concurrency_key, concurrency_limit, readiness, partitions)
SELECT u.id, $2, u.job_id, $1, u.dedupe_key, $3, $4, ($5::text || u.told || '}')::jsonb, $6, $7, $8, $9, $10, $11, $12::task_readiness,
    CASE WHEN u.partition IS NOT NULL THEN ARRAY[u.partition] END
FROM unnest($13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[]) AS u (id, job_id, dedupe_key, told, partition)

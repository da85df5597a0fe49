-- Tasks of definitions; one whose work was given out before (its dedupe key) is left out.
INSERT INTO tasks (id, org_id, job_id, definition_id, dedupe_key, type, entrypoint, kwargs, queue, max_attempts,
    timeout_seconds, concurrency_key, concurrency_limit, partitions, readiness)
SELECT id, org_id, job_id, definition_id, dedupe_key, type, $14, kwargs, queue, max_attempts, timeout_seconds, concurrency_key,
    concurrency_limit, CASE WHEN partition IS NULL THEN NULL ELSE ARRAY[partition] END,
    CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness
FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::jsonb[], $8::text[], $9::int[],
    $10::float8[], $11::text[], $12::int[], $13::text[]) WITH ORDINALITY
    AS u (id, org_id, job_id, definition_id, dedupe_key, type, kwargs, queue, max_attempts, timeout_seconds,
        concurrency_key, concurrency_limit, partition, nth)
ORDER BY nth
ON CONFLICT (definition_id, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
RETURNING id, org_id, job_id, queue, concurrency_key

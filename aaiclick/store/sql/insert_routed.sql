-- A few tasks of definitions. (COPY, which many take, is refused behind the wall between organisations.)
INSERT INTO tasks (id, org_id, job_id, definition_id, dedupe_key, type, entrypoint, kwargs, queue, max_attempts,
    timeout_seconds, concurrency_key, concurrency_limit, readiness, partitions)
SELECT id, org_id, job_id, definition_id, dedupe_key, type, entrypoint, kwargs, queue, max_attempts, timeout_seconds,
    concurrency_key, concurrency_limit, readiness, CASE WHEN partition IS NULL THEN NULL ELSE ARRAY[partition] END
FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::jsonb[], $9::text[],
    $10::int[], $11::float8[], $12::text[], $13::int[], $14::task_readiness[], $15::text[])
    AS u (id, org_id, job_id, definition_id, dedupe_key, type, entrypoint, kwargs, queue, max_attempts, timeout_seconds,
        concurrency_key, concurrency_limit, readiness, partition)

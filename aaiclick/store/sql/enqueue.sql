-- Insert tasks without a job and wake the workers of their queues; one whose idempotency key is taken is left out.
WITH put AS (
    INSERT INTO tasks (id, org_id, type, entrypoint, kwargs, queue, priority, max_attempts, timeout_seconds, retry_policy,
        available_at, idempotency_key, concurrency_key, concurrency_limit, critical, readiness)
    SELECT id, $1, type, entrypoint, kwargs, queue, priority, max_attempts, timeout_seconds, retry_policy,
        available_at, idempotency_key, concurrency_key, concurrency_limit, critical,
        CASE WHEN available_at IS NOT NULL THEN 'TIME' WHEN concurrency_key IS NOT NULL THEN 'HELD'
             ELSE 'READY' END::task_readiness
    FROM unnest($2::bigint[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::smallint[], $8::int[], $9::float8[],
        $10::jsonb[], $11::timestamptz[], $12::text[], $13::text[], $14::int[], $15::boolean[])
        AS u (id, type, entrypoint, kwargs, queue, priority, max_attempts, timeout_seconds, retry_policy, available_at,
            idempotency_key, concurrency_key, concurrency_limit, critical)
    ON CONFLICT (org_id, type, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, queue, readiness
),
told AS (
    SELECT pg_notify('aaiclick_ready', queue) FROM (SELECT DISTINCT queue FROM put WHERE readiness = 'READY') AS queues
)
SELECT id, (SELECT count(*) FROM told) FROM put

-- A job of $5 tasks; none of this name and idempotency key if there is one already.
INSERT INTO jobs (id, org_id, name, timeout_seconds, total_tasks, open_tasks, idempotency_key, definition_id,
    dag_version_id, trigger)
VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9)
ON CONFLICT (org_id, name, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id

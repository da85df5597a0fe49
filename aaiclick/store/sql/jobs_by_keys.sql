-- The jobs of the name $2 that were started under one of the idempotency keys $3.
SELECT id, status::text, idempotency_key AS key FROM jobs
WHERE org_id = $1 AND name = $2 AND idempotency_key IS NOT NULL AND idempotency_key = ANY ($3::text[])

-- I5: one task per idempotency key.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, min(id) AS id, count(*) || ' tasks have the key ' || idempotency_key AS finding FROM tasks
    WHERE idempotency_key IS NOT NULL GROUP BY org_id, type, idempotency_key HAVING count(*) > 1
) AS found
LIMIT 100

-- name: find_cached_result
-- The result of the last task with the cache key $2 of the org $1, if it completed less than $6 seconds ago (NULL: ever)
-- and is not one of $7, which have no table any more. It is noted in the task $3; without one, the task becomes the entry
-- of the key: its result is used when it has completed.
WITH hit AS MATERIALIZED (
    SELECT t.id, t.result, t.literal FROM result_cache c CROSS JOIN LATERAL (
        SELECT * FROM tasks t WHERE t.id = c.task_id AND t.org_id = $1 AND t.status = 'COMPLETED' AND t.id <> $3
          AND ($6::float8 IS NULL OR t.completed_at > now() - $6 * interval '1 second') OFFSET 0) t
    WHERE c.org_id = $1 AND c.key = $2 AND t.id <> ALL ($7::bigint[])
),
put AS (
    INSERT INTO result_cache (org_id, key, task_id) SELECT $1, $2, $3 WHERE NOT EXISTS (SELECT FROM hit)
    ON CONFLICT (org_id, key) DO UPDATE SET task_id = EXCLUDED.task_id, created_at = now()
),
noted AS (
    UPDATE tasks SET cached_from = (SELECT id FROM hit), updated_at = now()
    WHERE id = $3 AND attempt = $4 AND lease_token = $5 AND cached_from IS DISTINCT FROM (SELECT id FROM hit)
)
SELECT id AS task_id, result, literal FROM hit

-- name: delete_old_cached_results
-- Delete up to $2 entries that are older than $1 seconds and have no task any more.
DELETE FROM result_cache r USING (
    SELECT c.org_id, c.key FROM result_cache c
    WHERE c.created_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
      AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = c.task_id)
    LIMIT $2 FOR UPDATE SKIP LOCKED) o
WHERE r.org_id = o.org_id AND r.key = o.key

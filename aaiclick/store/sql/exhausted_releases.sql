-- Those of the tasks $1 that were running, and were released $2 times in a row over more than $3 seconds: releasing them
-- again would never end.
SELECT t.id FROM tasks t CROSS JOIN LATERAL (
    SELECT count(*) AS times, min(a.ended_at) AS since FROM task_attempts a
    WHERE a.task_id = t.id AND a.started_at IS NOT NULL
      AND a.ended_at > coalesce($4::timestamptz, now()) - 2 * $3::float8 * interval '1 second'
      AND a.attempt > coalesce((SELECT max(c.attempt) FROM task_attempts c WHERE c.task_id = t.id AND c.charged), 0)) r
WHERE t.id = ANY ($1::bigint[]) AND t.started_at IS NOT NULL AND r.times >= $2::int
  AND r.since <= coalesce($4::timestamptz, now()) - $3::float8 * interval '1 second'

-- I12: charged failures never exceed the most allowed, poison ends as a dead letter, and attempts that end uncharged are
-- delayed and limited: see MOST_RELEASES in `leases`, whose numbers these are.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, t.failures || ' of ' || t.max_attempts || ' attempts failed, and it is to be tried again'
        AS finding
    FROM tasks t WHERE t.failures >= t.max_attempts AND t.completed_at IS NULL
    UNION ALL
    SELECT 'task', t.id, r.times || ' attempts in a row ended uncharged within ' || round(r.seconds)
        || ' s, and it is to be tried again'
    FROM tasks t CROSS JOIN LATERAL (
        SELECT count(*) AS times, coalesce(extract(epoch FROM max(a.ended_at) - min(a.ended_at)), 0) AS seconds,
            count(a.started_at) AS started
        FROM task_attempts a WHERE a.task_id = t.id AND a.attempt > coalesce((
            SELECT max(c.attempt) FROM task_attempts c WHERE c.task_id = t.id AND c.charged), 0)) r
    WHERE t.completed_at IS NULL AND t.attempt - t.failures > 20
      -- For longer than allowed, or hundreds without a delay.
      AND ((r.started > 21 AND r.seconds BETWEEN 2 * 86400 AND 3600 * r.times)
        OR (r.times >= 200 AND r.seconds < 60 * r.times))
) AS found
LIMIT 100

-- Reactive definitions that had nothing to do for as long as they may wait for more. What is unfinished is looked for in jobs
-- that are: among the tasks of a definition it would be behind all that it ever had. (A comparison that has no index keeps the
-- plan from looking there.)
UPDATE job_definitions d SET status = 'Idle'
WHERE d.activation = 'reactive' AND d.status = 'Running'
  AND d.last_event_at < now() - CASE
    WHEN d.idle_timeout = 'never' THEN NULL
    WHEN coalesce(d.idle_timeout, '0') = '0' THEN interval '0'
    ELSE left(d.idle_timeout, -1)::int * CASE right(d.idle_timeout, 1)
        WHEN 's' THEN interval '1 second' WHEN 'm' THEN interval '1 minute' WHEN 'h' THEN interval '1 hour'
        ELSE interval '1 day' END END
  AND NOT EXISTS (
    SELECT FROM jobs j CROSS JOIN LATERAL (
        SELECT FROM tasks t WHERE t.job_id = j.id AND t.definition_id IS NOT DISTINCT FROM d.id AND t.completed_at IS NULL
        LIMIT 1) AS t
    WHERE j.org_id = d.org_id AND j.completed_at IS NULL)

-- Reactive definitions that had nothing to do for as long as they may wait for more.
UPDATE job_definitions d SET status = 'Idle'
WHERE d.activation = 'reactive' AND d.status = 'Running'
  AND d.last_event_at < now() - CASE
    WHEN d.idle_timeout = 'never' THEN NULL
    WHEN coalesce(d.idle_timeout, '0') = '0' THEN interval '0'
    ELSE left(d.idle_timeout, -1)::int * CASE right(d.idle_timeout, 1)
        WHEN 's' THEN interval '1 second' WHEN 'm' THEN interval '1 minute' WHEN 'h' THEN interval '1 hour'
        ELSE interval '1 day' END END
  AND NOT EXISTS (SELECT FROM tasks t WHERE t.definition_id = d.id AND t.completed_at IS NULL)

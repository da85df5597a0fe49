-- Definitions that were just given something to do. A source is Running when a worker has claimed its task (a trigger).
UPDATE job_definitions SET status = CASE WHEN activation = 'reactive' THEN 'Running' ELSE status END, last_event_at = now()
WHERE id = ANY ($1::uuid[])

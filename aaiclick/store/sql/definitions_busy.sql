-- Definitions that were just given something to do.
UPDATE job_definitions SET status = 'Running', last_event_at = now() WHERE id = ANY ($1::uuid[])

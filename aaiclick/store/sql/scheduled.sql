-- The definition $1 has its next run at $2; it was given something to do if $3.
UPDATE job_definitions SET next_run_at = $2, last_event_at = CASE WHEN $3 THEN now() ELSE last_event_at END WHERE id = $1

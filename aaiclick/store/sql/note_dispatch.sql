-- The task $1 of the org $2, after its attempt $3, could not be given to its runtime: $4.
INSERT INTO dispatches AS d (task_id, org_id, attempt, error) VALUES ($1, $2, $3, $4)
ON CONFLICT (task_id) DO UPDATE SET attempt = excluded.attempt, sent_at = now(), error = excluded.error, sent = d.sent + 1

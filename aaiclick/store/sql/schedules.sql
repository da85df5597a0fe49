-- name: lock_due_schedules
-- Lock schedules that are due at $1, at most $2, with the number of their unfinished jobs if that matters. Rows that
-- another scheduler holds are skipped.
SELECT {schedules.*}, coalesce($1::timestamptz, now()) AS now,
    CASE WHEN overlap = 'allow' THEN 0 ELSE (
        SELECT count(*) FROM jobs j
        WHERE j.schedule_id = s.id AND j.status IN ('PENDING', 'RUNNING')) END AS running
FROM schedules s
WHERE due_at IS NOT NULL AND due_at <= coalesce($1::timestamptz, now())
ORDER BY due_at LIMIT $2 FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: advance_schedule
-- Set the next run of the schedule $1 to $2, due at $3; its last run to $4 with the id $5, if given; adds $6 skipped
-- runs.
UPDATE schedules SET next_run_at = $2, due_at = $3, last_nominal_at = coalesce($4, last_nominal_at),
    last_run_id = coalesce($5, last_run_id), skipped = skipped + $6, error = NULL
WHERE id = $1

-- name: postpone_schedule
-- Look at the schedule $1 again at $2; its run could not be started because of $3.
UPDATE schedules SET due_at = $2, error = $3 WHERE id = $1

-- name: list_unfinished_runs
-- Unfinished jobs of the schedule $1, at most $2.
SELECT id FROM jobs
WHERE schedule_id = $1 AND status IN ('PENDING', 'RUNNING') ORDER BY id LIMIT $2

-- name: lock_schedule
-- Lock the schedule $2 of the org $1.
SELECT {schedules.*}, now() AS now FROM schedules WHERE org_id = $1 AND name = $2 FOR NO KEY UPDATE

-- name: insert_schedule
-- Insert a schedule; no row if its name exists in the org.
INSERT INTO schedules (id, org_id, name, anchor_at, next_run_at, due_at, {schedule_fields.*})
SELECT $1, $2, $3, $4, $5::timestamptz, $5, {schedule_fields.$6}
ON CONFLICT (org_id, name) DO NOTHING
RETURNING {schedules.*}

-- name: update_schedule
-- Replace the fields of the schedule $1; a paused one stays paused.
UPDATE schedules SET (anchor_at, next_run_at, due_at, {schedule_fields.*}) = ROW (
        $2::timestamptz, $3::timestamptz, CASE WHEN paused_at IS NULL THEN $3::timestamptz END, {schedule_fields.$4}),
    missing_at = NULL, error = NULL, updated_at = now()
WHERE id = $1
RETURNING {schedules.*}

-- name: get_schedule
-- The schedule $2 of the org $1, with the state of its last run.
SELECT {schedules.*}, r.* FROM schedules s
LEFT JOIN LATERAL (
    SELECT j.status::text AS run_status, j.created_at AS run_at, j.error AS run_error FROM jobs j
    WHERE j.id = s.last_run_id AND s.item_type IS NULL
    UNION ALL
    SELECT t.status::text, t.created_at, t.error FROM tasks t WHERE t.id = s.last_run_id AND s.item_type IS NOT NULL
) AS r ON true
WHERE s.org_id = $1 AND s.name = $2

-- name: list_schedules
-- Schedules of the org $1 after the name $2, at most $4, with the states of their last runs; only those in the state $3
-- ('active', 'paused' or 'missing'; NULL: any).
SELECT {schedules.*}, r.* FROM schedules s
LEFT JOIN LATERAL (
    SELECT j.status::text AS run_status, j.created_at AS run_at, j.error AS run_error FROM jobs j
    WHERE j.id = s.last_run_id AND s.item_type IS NULL
    UNION ALL
    SELECT t.status::text, t.created_at, t.error FROM tasks t WHERE t.id = s.last_run_id AND s.item_type IS NOT NULL
) AS r ON true
WHERE s.org_id = $1 AND s.name > $2
  AND ($3::text IS NULL OR $3 = CASE WHEN s.missing_at IS NOT NULL THEN 'missing'
      WHEN s.paused_at IS NOT NULL THEN 'paused' ELSE 'active' END)
ORDER BY s.name LIMIT $4

-- name: list_schedule_runs
-- Jobs of the schedule $1, newest first, at most $2.
SELECT {jobs.*} FROM jobs WHERE schedule_id = $1 ORDER BY id DESC LIMIT $2

-- name: find_scheduled_jobs
-- Jobs of the org $1 with the name $2 and idempotency keys $3.
SELECT idempotency_key, id, status::text FROM jobs
WHERE org_id = $1 AND name = $2 AND idempotency_key = ANY ($3::text[])

-- name: find_scheduled_items
-- Tasks of the org $1 with the type $2 and idempotency keys $3.
SELECT idempotency_key, id, status::text FROM tasks
WHERE org_id = $1 AND type = $2 AND idempotency_key = ANY ($3::text[])

-- name: delete_schedule
DELETE FROM schedules WHERE org_id = $1 AND name = $2 RETURNING id

-- name: pause_schedule
UPDATE schedules SET paused_at = coalesce(paused_at, now()), due_at = NULL, updated_at = now()
WHERE org_id = $1 AND name = $2 RETURNING id

-- name: resume_schedule
-- Resume a schedule. Runs missed while it was paused are handled by its policy.
UPDATE schedules SET paused_at = NULL, due_at = CASE WHEN missing_at IS NULL THEN next_run_at END, updated_at = now()
WHERE org_id = $1 AND name = $2 RETURNING id

-- name: list_declared_schedules
-- Lock the schedules of the org $1 that are declared in the module $2 or below it.
SELECT {schedules.*}, now() AS now FROM schedules
WHERE org_id = $1 AND declared_in IS NOT NULL AND (declared_in = $2 OR starts_with(declared_in, $2 || '.'))
ORDER BY name FOR NO KEY UPDATE

-- name: mark_schedule_missing
-- Stop the schedule $1, since its code is missing.
UPDATE schedules SET missing_at = coalesce(missing_at, now()), due_at = NULL, error = $2, updated_at = now()
WHERE id = $1

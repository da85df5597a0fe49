-- name: insert_approval
-- The question of the attempt $3 of the task $2, which has just begun to wait for its decision.
INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role, form, shown, created_at)
SELECT $1, t.org_id, t.id, $3, t.available_at, $4, $5, $6, $7, coalesce($8::timestamptz, now()) FROM tasks t WHERE t.id = $2

-- name: list_approvals
-- Approvals of the org $1 before the id $2, newest first.
SELECT a.id, a.org_id, a.task_id, a.created_at, a.expires_at, a.title, a.role, a.form::text AS form,
    a.shown::text AS shown, a.decision, a.decided_at, a.decided_by, a.reason, a.answers::text AS answers, t.*
FROM approvals a CROSS JOIN LATERAL (
    SELECT t.job_id, (SELECT j.name FROM jobs j WHERE j.id = t.job_id) AS job_name, t.status::text AS task_status,
        t.readiness::text = 'TIME' AND t.attempt = a.attempt AS is_waiting FROM tasks t WHERE t.id = a.task_id OFFSET 0) t
WHERE a.org_id = $1 AND a.id < $2 ORDER BY a.id DESC LIMIT $3

-- name: list_waiting_approvals
-- Approvals of the org $1 before the id $2 that wait for a decision, newest first.
SELECT a.id, a.org_id, a.task_id, a.created_at, a.expires_at, a.title, a.role, a.form::text AS form,
    a.shown::text AS shown, a.decision, a.decided_at, a.decided_by, a.reason, a.answers::text AS answers, t.*
FROM approvals a CROSS JOIN LATERAL (
    SELECT t.job_id, (SELECT j.name FROM jobs j WHERE j.id = t.job_id) AS job_name, t.status::text AS task_status,
        t.readiness::text = 'TIME' AND t.attempt = a.attempt AS is_waiting FROM tasks t WHERE t.id = a.task_id OFFSET 0) t
WHERE a.org_id = $1 AND a.id < $2 AND a.decided_at IS NULL AND t.is_waiting
ORDER BY a.id DESC LIMIT $3

-- name: get_approval
SELECT a.id, a.org_id, a.task_id, a.created_at, a.expires_at, a.title, a.role, a.form::text AS form,
    a.shown::text AS shown, a.decision, a.decided_at, a.decided_by, a.reason, a.answers::text AS answers, t.*
FROM approvals a CROSS JOIN LATERAL (
    SELECT t.job_id, (SELECT j.name FROM jobs j WHERE j.id = t.job_id) AS job_name, t.status::text AS task_status,
        t.readiness::text = 'TIME' AND t.attempt = a.attempt AS is_waiting FROM tasks t WHERE t.id = a.task_id OFFSET 0) t
WHERE a.id = $1

-- name: lock_approval
-- Lock the task of an approval, then the approval: of concurrent decisions the second one reads the first.
WITH task AS MATERIALIZED (
    SELECT id FROM tasks WHERE id = (SELECT task_id FROM approvals WHERE id = $1) FOR NO KEY UPDATE)
SELECT id FROM approvals WHERE id = $1 AND (SELECT true FROM task) FOR NO KEY UPDATE

-- name: decide_approval
UPDATE approvals SET decided_at = coalesce($6::timestamptz, now()), decision = $2, decided_by = $3, reason = $4, answers = $5
WHERE id = $1 RETURNING task_id

-- name: delete_wait
DELETE FROM waits WHERE task_id = $1

-- name: insert_approval_link
INSERT INTO approval_links (token_hash, org_id, approval_id, recipient, expires_at)
SELECT $1, a.org_id, a.id, $3, least(now() + $4::float8 * interval '1 second', a.expires_at) FROM approvals a WHERE a.id = $2
RETURNING expires_at

-- name: find_approval_link
SELECT approval_id, org_id, recipient, used_at IS NOT NULL AS is_used, expires_at <= now() AS is_expired
FROM approval_links WHERE token_hash = $1

-- name: use_approval_link
-- A decision by this link is recorded.
UPDATE approval_links SET used_at = now() WHERE token_hash = $1

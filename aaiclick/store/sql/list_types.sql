-- Types of tasks that have settings of their own, in the org $1 (NULL: in all).
SELECT org_id, name, retry_policy, paused_at FROM task_types
WHERE (retry_policy IS NOT NULL OR paused_at IS NOT NULL) AND ($1::uuid IS NULL OR org_id = $1) ORDER BY org_id, name

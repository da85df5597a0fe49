-- Types of tasks that have settings of their own.
SELECT org_id, name, retry_policy, paused_at FROM task_types
WHERE retry_policy IS NOT NULL OR paused_at IS NOT NULL ORDER BY org_id, name

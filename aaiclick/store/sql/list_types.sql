-- Types of tasks that have settings of their own, in the org $1 (NULL: in all).
SELECT o.slug AS org, t.name, t.retry_policy, t.paused_at FROM task_types t JOIN orgs o ON o.id = t.org_id
WHERE (t.retry_policy IS NOT NULL OR t.paused_at IS NOT NULL) AND ($1::uuid IS NULL OR t.org_id = $1)
ORDER BY o.slug, t.name

-- I4: nothing starts before its predecessors have completed; what a task returns ends after it began. A claim bears the
-- time at which its transaction began, which on a busy machine is a moment before it looked: hence a second's grace.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'began before ' || d.previous_type || ' ' || d.previous_id || ' completed' AS finding
    FROM tasks t JOIN dependencies d ON d.next_id = t.id
    LEFT JOIN tasks p ON d.previous_type = 'task' AND p.id = d.previous_id
    LEFT JOIN groups q ON d.previous_type = 'group' AND q.id = d.previous_id
    WHERE t.status IN ('CLAIMED', 'RUNNING', 'COMPLETED') AND NOT coalesce(p.passed_over, false)
      AND (CASE d.previous_type WHEN 'task' THEN p.status IS DISTINCT FROM 'COMPLETED' ELSE q.completed_at IS NULL END
           OR (t.claimed_at < coalesce(p.completed_at, q.completed_at) - interval '1 second' AND p.added_by IS DISTINCT FROM t.id))
    UNION ALL
    SELECT 'task', t.id, 'began before its group ' || g.id || ' opened' FROM tasks t JOIN groups g ON g.id = t.group_id
    WHERE t.status IN ('CLAIMED', 'RUNNING', 'COMPLETED') AND g.unmet > 0
) AS found
LIMIT 100

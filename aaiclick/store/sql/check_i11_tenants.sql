-- I11: nothing crosses tenants: a task is of the org of its job, its definition, its worker and what it waits for, and
-- what holds a table is of that table's. Groups and events are of their jobs' orgs by their keys.
WITH node AS (
    SELECT id, org_id FROM tasks
    UNION ALL
    SELECT g.id, j.org_id FROM groups g JOIN jobs j ON j.id = g.job_id
)
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, format('of org %s, in job %s of org %s', t.org_id, j.id, j.org_id) AS finding
    FROM tasks t JOIN jobs j ON j.id = t.job_id WHERE j.org_id <> t.org_id
    UNION ALL
    SELECT 'task', t.id, format('of org %s, by definition %s of org %s', t.org_id, d.id, d.org_id)
    FROM tasks t JOIN job_definitions d ON d.id = t.definition_id WHERE d.org_id <> t.org_id
    UNION ALL
    SELECT 'task', t.id, format('of org %s, taken by worker %s of org %s', t.org_id, w.id, w.org_id)
    FROM tasks t JOIN workers w ON w.id = t.worker_id WHERE w.org_id <> t.org_id
    UNION ALL
    SELECT d.next_type::text, d.next_id, format('of org %s, waits for %s %s of org %s', n.org_id, d.previous_type, p.id, p.org_id)
    FROM dependencies d JOIN node n ON n.id = d.next_id JOIN node p ON p.id = d.previous_id WHERE n.org_id <> p.org_id
    UNION ALL
    SELECT 'task', t.id, format('of org %s, holds %s of org %s', t.org_id, c.table_name, c.org_id)
    FROM table_references r JOIN table_refcounts c USING (table_name) JOIN tasks t ON t.id = r.owner_id
    WHERE r.owner IN ('ATTEMPT', 'RESULT', 'TASK') AND c.org_id <> t.org_id
    UNION ALL
    SELECT 'job', j.id, format('of org %s, holds %s of org %s', j.org_id, c.table_name, c.org_id)
    FROM table_references r JOIN table_refcounts c USING (table_name) JOIN jobs j ON j.id = r.job_id
    WHERE c.org_id <> j.org_id
) AS found
LIMIT 100

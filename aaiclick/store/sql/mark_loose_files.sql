-- Mark up to $1 loose files that nobody reads or writes any more, for at least $2 seconds: they can be deleted. What was marked
-- $3 seconds ago is marked again: whoever did it has died, or could not.
--
-- A reader knows which files there are from a moment within its attempt, or (a query) from less than $2 seconds ago. So a
-- file that was replaced is needed while an attempt lives that began before readers can have heard of that.
UPDATE loose_files SET deleting_at = now()
WHERE ctid = ANY (ARRAY(
    SELECT l.ctid FROM loose_files l
    WHERE coalesce(l.replaced_at, l.written_at) <= now() - $2::float8 * interval '1 second'
      AND (l.deleting_at IS NULL OR l.deleting_at <= now() - $3::float8 * interval '1 second')
      AND NOT EXISTS (
        SELECT FROM tasks t WHERE t.status IN ('CLAIMED', 'RUNNING') AND CASE WHEN l.replaced_at IS NULL
            THEN t.id = l.task_id AND t.attempt = l.attempt
            ELSE t.org_id = l.org_id AND t.definition_id IS NOT NULL
                AND t.claimed_at <= l.replaced_at + $2::float8 * interval '1 second' END)
      AND NOT EXISTS (
        SELECT FROM dataset_versions v CROSS JOIN LATERAL jsonb_array_elements(v.files) AS f (file)
        WHERE v.id = l.dataset_version AND f.file ->> 'name' = l.name)
    ORDER BY l.deleting_at NULLS FIRST, l.written_at LIMIT $1 FOR UPDATE OF l SKIP LOCKED))
RETURNING dataset_version, location, name

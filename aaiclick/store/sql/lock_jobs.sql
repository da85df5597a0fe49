-- Take the graph lock of the jobs that the tasks $1 are linked into, in the order of their ids; docs/engine.md says
-- what it protects. Shared where completing only touches tasks; alone where it touches groups, where it may complete
-- the task that returned it, or where $2 says so.
-- The commit lets go of the locks before it waits for the disk: `flush.sql` does the waiting.
SELECT job_id, alone, set_config('synchronous_commit', 'off', true), CASE WHEN alone THEN pg_advisory_xact_lock(job_id) IS NULL
                      ELSE pg_advisory_xact_lock_shared(job_id) IS NULL END
FROM (
    -- Not EXISTS: it may be planned as a hash of the whole table.
    SELECT t.job_id, bool_or($2 OR t.group_id IS NOT NULL OR coalesce((
        SELECT true FROM dependencies d WHERE d.previous_id = t.id AND d.next_type = 'group' LIMIT 1), false)
        OR CASE WHEN t.added_by IS NULL THEN false ELSE coalesce((
            SELECT p.readiness = 'BLOCKED' AND p.result IS NOT NULL FROM tasks p WHERE p.id = t.added_by), false) END
        ) AS alone
    FROM unnest($1::bigint[]) AS given (id) CROSS JOIN LATERAL (
        SELECT t.id, t.job_id, t.group_id, t.followed, t.added_by FROM tasks t WHERE t.id = given.id OFFSET 0) t
    WHERE t.job_id IS NOT NULL AND (t.followed OR t.group_id IS NOT NULL)
    GROUP BY t.job_id ORDER BY t.job_id
) AS needed

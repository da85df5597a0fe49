-- name: advance_groups
-- One step of the propagation through groups: $1 (tasks or groups) have completed, the groups $2 lost $3 open members,
-- the groups $4 have opened, the groups $6 have one predecessor less. Returns the groups that opened and those that
-- completed; the caller repeats it with these.
WITH change AS MATERIALIZED (
    SELECT id, sum(met)::int AS met, sum(gone)::int AS gone FROM (
        SELECT d.next_id AS id, 1 AS met, 0 AS gone FROM dependencies d
        WHERE d.previous_id = ANY ($1::bigint[]) AND d.next_type = 'group'
        UNION ALL SELECT u.id, 0, u.gone FROM unnest($2::bigint[], $3::int[]) AS u (id, gone)
        UNION ALL SELECT g.id, 1, 0 FROM groups g WHERE g.parent_group_id = ANY ($4::bigint[])
        UNION ALL SELECT unnest($6::bigint[]), 1, 0
    ) AS parts GROUP BY id
)
UPDATE groups g SET unmet = g.unmet - c.met, open = g.open - c.gone,
    completed_at = CASE WHEN g.unmet = c.met AND g.open = c.gone AND num_nonnulls(g.failed_at, g.skipped_at) = 0
        THEN coalesce($5::timestamptz, now()) END
FROM change c WHERE g.id = ANY (ARRAY(SELECT id FROM change)) AND g.id = c.id
RETURNING g.id, g.parent_group_id, c.met > 0 AND g.unmet = 0 AND g.skipped_at IS NULL AS opened, g.completed_at IS NOT NULL AS completed

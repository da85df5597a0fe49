-- Extend the term of $1 if it leads; begin one if nobody does. Nobody leads twice: a term once over is never extended.
UPDATE workers w SET is_leader = true, leader_term = CASE WHEN w.is_leader THEN w.leader_term
        ELSE nextval('leader_terms') END,
    leader_until = coalesce($3::timestamptz, now()) + $2::float8 * interval '1 second'
WHERE w.id = $1 AND w.status <> 'STOPPED'
  AND (w.is_leader OR NOT EXISTS (SELECT FROM workers o WHERE o.is_leader))
RETURNING leader_term

-- Which of the jobs $1 may still grow; nobody cancels one of them before this transaction ends.
SELECT j.id FROM (
    SELECT given.id, pg_advisory_xact_lock_shared(given.id)
    FROM (SELECT DISTINCT id FROM unnest($1::bigint[]) AS u (id) ORDER BY id) AS given OFFSET 0
) AS held CROSS JOIN LATERAL (
    SELECT j.id FROM jobs j WHERE j.id = held.id AND j.cancel_requested_at IS NULL AND j.completed_at IS NULL OFFSET 0) AS j

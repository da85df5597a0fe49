-- The worker $1 has stopped: it leads no more and holds nothing. Its leases are given back by the caller.
UPDATE workers SET status = 'STOPPED', stopped_at = coalesce($2::timestamptz, now()), is_leader = false,
    leader_until = NULL
WHERE id = $1 AND status <> 'STOPPED' RETURNING id

-- The worker $1 is to finish what it runs and then end: its supervisor tells it so.
UPDATE workers SET drain_requested_at = coalesce(drain_requested_at, now()) WHERE id = $1 AND status <> 'STOPPED' RETURNING id

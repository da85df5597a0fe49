SELECT EXISTS (
    SELECT FROM outbox WHERE status = 'Pending' AND kind = 'route_event' AND available_at <= coalesce($1::timestamptz, now()))

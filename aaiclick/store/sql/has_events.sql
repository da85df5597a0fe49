SELECT EXISTS (SELECT FROM outbox WHERE status = 'Pending' AND kind = 'route_event')

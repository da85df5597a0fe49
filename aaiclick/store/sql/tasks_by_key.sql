SELECT u.nth, t.id FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (type, key, nth)
JOIN tasks t ON t.org_id = $1 AND t.type = u.type AND t.idempotency_key = u.key

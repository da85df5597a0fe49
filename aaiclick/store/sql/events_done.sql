UPDATE outbox SET status = 'Done', processed_at = now(), attempts = attempts + 1 WHERE id = ANY ($1::bigint[])

-- Wake the workers of the queues $1 when this transaction commits; PostgreSQL folds repetitions.
SELECT pg_notify('aaiclick_ready', u.queue) FROM unnest($1::text[]) AS u (queue)

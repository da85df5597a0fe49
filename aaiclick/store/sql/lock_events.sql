-- Whoever emits events of one dataset does so one after the other: their ids then have the order of their commits.
SELECT pg_advisory_xact_lock(hashtextextended('events:' || key, 0))
FROM (SELECT DISTINCT key FROM unnest($1::text[]) AS u (key) ORDER BY key) AS keys

-- Serialise the handing out of slots, key by key, in one order for everybody.
SELECT pg_advisory_xact_lock(1633773923, k.lock) FROM (
    SELECT DISTINCT hashtext(u.org_id::text || u.key) AS lock FROM unnest($1::uuid[], $2::text[]) AS u (org_id, key)
    ORDER BY lock) AS k

-- Tables that nobody knows are known from now on, as being dropped: nobody can refer to them any more. Returns those
-- that were not known. They are of the org $2.
INSERT INTO table_refcounts (table_name, org_id, dropping_at)
SELECT name, $2, now() FROM unnest($1::text[]) AS n (name) ORDER BY name
ON CONFLICT DO NOTHING RETURNING table_name

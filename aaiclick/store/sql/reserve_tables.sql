-- Attempts that still have their lease are about to create tables: each is known, and held by its attempt, before it
-- exists. FOR SHARE: whoever ends the attempt comes before this (and nothing is held) or after it (and releases it).
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::uuid[]) AS g (name, id, attempt, token)
),
live AS MATERIALIZED (
    SELECT g.name, g.id, g.attempt, t.org_id FROM given g CROSS JOIN LATERAL (
        SELECT t.org_id FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token FOR SHARE) t
),
known AS (
    INSERT INTO table_refcounts (table_name, org_id) SELECT DISTINCT name, org_id FROM live ORDER BY name
    ON CONFLICT DO NOTHING
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, attempt)
    SELECT DISTINCT name, 'ATTEMPT'::reference_owner, id, attempt FROM live ORDER BY name ON CONFLICT DO NOTHING
)
SELECT name, id FROM live

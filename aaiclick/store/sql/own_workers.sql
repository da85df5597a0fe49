-- Whether all the workers $1 are of the org $2.
SELECT NOT EXISTS (
    SELECT FROM unnest($1::bigint[]) AS g (id) WHERE NOT EXISTS (SELECT FROM workers w WHERE w.id = g.id AND w.org_id = $2))

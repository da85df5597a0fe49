UPDATE groups g SET open = g.open + u.added
FROM unnest($1::bigint[], $2::int[]) AS u (id, added) WHERE g.id = u.id

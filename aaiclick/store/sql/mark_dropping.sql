-- Mark up to $1 tables that nothing refers to: from here on a new reference is refused, so they can be dropped. The lock
-- is the second look at the count (PostgreSQL asks again of a row that has changed when it is locked): who comes with a
-- reference first keeps the table. What was marked $2 seconds ago is marked again: whoever did it has died.
UPDATE table_refcounts SET dropping_at = coalesce($3::timestamptz, now())
WHERE table_name = ANY (ARRAY(
    SELECT table_name FROM table_refcounts
    WHERE refcount <= 0
      AND (dropping_at IS NULL OR dropping_at <= coalesce($3::timestamptz, now()) - $2::float8 * interval '1 second')
    ORDER BY updated_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING table_name, org_id

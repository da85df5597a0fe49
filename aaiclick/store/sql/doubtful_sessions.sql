-- Sessions that may be over: silent for $1 seconds, or known by their marker in ClickHouse only.
SELECT id, in_clickhouse FROM table_sessions
WHERE in_clickhouse OR seen_at < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'

-- Seconds since PostgreSQL started.
SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8

-- Take the graph lock of one job, alone.
SELECT pg_advisory_xact_lock($1)

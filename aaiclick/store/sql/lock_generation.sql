-- Rows of one generation change one update after the other.
SELECT pg_advisory_xact_lock(hashtextextended('generation:' || $1::uuid, 0))

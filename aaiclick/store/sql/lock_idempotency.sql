-- False: the same request is being answered at this moment.
SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))

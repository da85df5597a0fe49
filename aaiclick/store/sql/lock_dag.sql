-- Deploys of one DAG follow each other; those of different DAGs do not meet.
SELECT pg_advisory_xact_lock(hashtextextended('dag:' || $1::uuid || ':' || $2, 0))

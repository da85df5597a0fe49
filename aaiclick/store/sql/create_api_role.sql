-- The role that the API's sessions take on; roles belong to the whole server, so another database may have made it.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'aaiclick_api') THEN
        CREATE ROLE aaiclick_api NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$

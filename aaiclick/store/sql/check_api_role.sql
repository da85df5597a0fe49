-- Who this session is to PostgreSQL, and whether a wall would stop it.
SELECT current_user::text AS name, r.rolsuper OR r.rolbypassrls AS passes,
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
            AND c.relname <> 'aaiclick_version' AND (NOT c.relrowsecurity OR pg_has_role(current_user, c.relowner, 'USAGE')))
        AS owns
FROM pg_roles r WHERE r.rolname = current_user

-- Whether the role of the API is there, is ours to take on, and has been let to the newest table.
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'aaiclick_api')
   AND pg_has_role(current_user, (SELECT oid FROM pg_roles WHERE rolname = 'aaiclick_api'), 'MEMBER')
   AND has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = 'aaiclick_api'), 'org_secrets', 'DELETE')

-- This user may take on the role of the API.
DO $$ BEGIN
    IF NOT pg_has_role(current_user, 'aaiclick_api', 'MEMBER') OR NOT EXISTS (
        SELECT FROM pg_auth_members WHERE member = current_user::regrole AND roleid = 'aaiclick_api'::regrole) THEN
        EXECUTE format('GRANT aaiclick_api TO %I', current_user);
    END IF;
END $$

-- A term that has run out, or whose holder has stopped, is over.
UPDATE workers SET is_leader = false, leader_until = NULL
WHERE is_leader AND (leader_until <= coalesce($1::timestamptz, now()) OR status = 'STOPPED')

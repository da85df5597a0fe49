-- I10: leaders' terms never overlap: one at most leads, and its term is the newest.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'worker' AS kind, w.id, 'leads beside another' AS finding FROM workers w
    WHERE w.is_leader AND EXISTS (SELECT FROM workers o WHERE o.is_leader AND o.id <> w.id)
    UNION ALL
    SELECT 'worker', w.id, 'leads by term ' || w.leader_term || ', and a later one was given out' FROM workers w
    WHERE w.is_leader AND w.leader_term < (SELECT max(leader_term) FROM workers)
) AS found
LIMIT 100

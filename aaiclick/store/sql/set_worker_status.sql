-- ACTIVE or IDLE; a worker that has been stopped stays stopped.
UPDATE workers SET status = $2::worker_status WHERE id = $1 AND status <> 'STOPPED' RETURNING id

UPDATE workers SET is_leader = false, leader_until = NULL WHERE id = $1 AND is_leader RETURNING leader_term

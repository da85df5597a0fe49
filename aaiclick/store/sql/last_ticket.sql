-- The last ticket that was taken; 0 if none was.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM dataset_tickets

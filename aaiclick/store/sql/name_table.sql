-- The table $1 is kept by the name $2.
WITH known AS (INSERT INTO table_refcounts (table_name) VALUES ($1) ON CONFLICT DO NOTHING)
INSERT INTO table_references (table_name, owner, name) VALUES ($1, 'NAME', $2) ON CONFLICT DO NOTHING

-- Whether there is more than one organisation; the claims ask the same.
SELECT count(*) > 1 FROM (SELECT FROM orgs LIMIT 2) o

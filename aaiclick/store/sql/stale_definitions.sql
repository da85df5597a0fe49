-- Definitions of the version $1 whose outputs are older than what they read, with one input to start them by. $2: only
-- those whose outputs were made for the version. $3: also those that only look up to date (reading them again is cheap).
SELECT DISTINCT ON (d.id) d.id, d.name, i.dataset, i.generation
FROM job_definitions d
CROSS JOIN LATERAL (
    SELECT min(v.ticket) AS ticket, bool_and(v.dag_version_id IS NOT DISTINCT FROM $1) AS made_for
    FROM dag_version_datasets p JOIN dataset_versions v ON v.id = p.dataset_version
    WHERE p.dag_version_id = $1 AND p.dataset_uuid = ANY (d.output_datasets::uuid[])) AS o
CROSS JOIN LATERAL (
    SELECT s.id AS dataset, v.id AS generation, v.ticket
    FROM datasets s
    JOIN dag_version_datasets p ON p.dataset_uuid = s.id AND p.dag_version_id =
        CASE WHEN s.producer_dag_name = d.dag_name THEN $1 ELSE (
            SELECT c.dag_version_id FROM dag_current_versions c
            WHERE c.org_id = d.org_id AND c.dag_name = s.producer_dag_name) END
    JOIN dataset_versions v ON v.id = p.dataset_version
    WHERE s.id = ANY (d.input_datasets::uuid[]) AND s.org_id = d.org_id) AS i
WHERE d.dag_version_id = $1 AND d.activation = 'reactive' AND o.ticket IS NOT NULL AND i.ticket > 0
  AND (NOT $2 OR o.made_for) AND (i.ticket > o.ticket OR ($3 AND d.operator IN ('sql', 'python')))
ORDER BY d.id, i.ticket DESC

UPDATE datasets d SET name = n.name
FROM unnest($3::text[], $4::int[], $5::text[]) AS n (job_name, output_index, name)
WHERE d.org_id = $1 AND d.producer_dag_name = $2 AND d.producer_job_name = n.job_name
  AND d.producer_output_index = n.output_index

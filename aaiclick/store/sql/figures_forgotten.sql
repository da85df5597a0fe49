-- What retention has deleted so far.
SELECT kind, status, nullif(bucket, -1) AS bucket, count, seconds FROM forgotten_figures

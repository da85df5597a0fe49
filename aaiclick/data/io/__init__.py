"""Python values, Arrow, files, URLs and S3: data in and out.

In:

- `to_arrow`: Python values to Arrow tables with ClickHouse types
- `arrow_types`: mapping between Arrow types and ClickHouse types
- `casting`: checks that appended values are not changed by a cast
- `ingest`: import of files and URLs: bytes are streamed to ClickHouse
- `ssrf`: SSRF protection for downloads
- `s3`: client for S3 and compatible stores
- `formats`: file formats and compressions
- `parse_errors`: short descriptions of ClickHouse's parse errors

Next: aaiclick.data.runtime, which stores the rows and returns results.

Out:

- `from_arrow`: results to Python, pandas, polars and NumPy
- `annotations`: Object arguments to the types that a function's annotations name
- `bounded_reads`: results with limits on bytes, rows and values, as JSON
- `json_values`: values to JSON-compatible values
- `export`: export of Objects to files and S3
"""

"""Python values, Arrow, files, URLs and S3: data in and out.

In:

- `ingest`: import of files, directories and globs as Objects
- `input_files`: paths, globs, URLs and S3 prefixes to files; downloads
- `file_readers`: readers of Parquet, ORC and Arrow
- `csv_reader`: reader of CSV and TSV
- `csv_dialect`: options and detection of CSV dialects
- `json_reader`: reader of JSON and JSON lines
- `text_type_inference`: types of values that are written as text
- `byte_streams`: decompressed and transcoded streams
- `formats`: file formats and compressions
- `ssrf`: SSRF protection for downloads
- `s3_client`: client for S3 and compatible stores
- `to_arrow`: Python values and Arrow tables to the stored form
- `python_values`: checks of Python values, and their conversion to structures and JSON
- `lossy_cast_checks`: checks that appended values are not changed by a cast

Both ways:

- `literal_result_codec`: small values as text, stored with the task that returned them
- `untrusted_arrow`: Arrow streams that an untrusted process wrote
- `literal_result_preview`: columns, rows and files of literals, without ClickHouse
- `typed_values`: dates, enums, dataclasses and others as plain values, restored by annotation
- `avro`: reader and writer of Avro
- `arrow_types`: mapping between Arrow types and ClickHouse types
- `nested_arrays`: inner arrays of lists, structs and maps
- `arrow_nullable_structures`: stored form of lists, structs and maps that may be NULL

Next: aaiclick.data.runtime, which stores the rows and returns results.

Out:

- `from_arrow`: results to Python, pandas, polars and NumPy
- `argument_conversion`: Object arguments to the types that a function's annotations name
- `bounded_reads`: results with limits on bytes, rows and values, as JSON
- `json_values`: values to JSON-compatible values
- `export`: export of Objects to files and S3
- `file_writers`: encoders of the file formats
- `arrow_json_text`: Arrow columns as JSON text
"""

"""DAG files in YAML: parsing with positions, validation, content hashes and diffs.

- `load`: loads a DAG file with the modules below, or reports every error in it
- `yaml_tree`: parses YAML into a tree in which every node has a file position
- `model`: types of a DAG file
- `data_tests`: types of the data tests of an output
- `data_test_rules`: rules between the fields of a data test
- `data_test_datasets`: datasets that data tests read, and those of rejected rows
- `freshness`: freshness policy of an output
- `time_zones`: check of time zones
- `findings`: violated rules, and access to the parsed data
- `validation`: rules between fields of a definition, and between definitions
- `function_inputs`: inputs as parameters of the functions of `python` definitions
- `python_function_checks`: checks of these functions, where their code can be imported
- `toposort`: topological order and cycles of a graph of names
- `pydantic_error_messages`: Pydantic errors as messages for the author of the file
- `json_schema`: JSON Schema of DAG files, for editors
- `hashing`: content hashes of DAGs, definitions and datasets
- `diff`: differences between two versions, and the datasets to rebuild
- `diff_format`: lines of text that describe a diff
- `runtime_and_location_check`: checks that the runtimes and file locations of a DAG are configured

Next: aaiclick.catalog.deploy.
"""

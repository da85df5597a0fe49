"""DAG files in YAML: parsing with positions, validation, content hashes and diffs.

- `load`: loads a DAG file with the modules below, or reports every error in it
- `yaml_tree`: parses YAML into a tree in which every node has a file position
- `model`: types of a DAG file
- `validation`: rules between fields of a definition, and between definitions
- `toposort`: topological order and cycles of a graph of names
- `error_text`: Pydantic errors as messages for the author of the file
- `json_schema`: JSON Schema of DAG files, for editors
- `hashing`: content hashes of DAGs, definitions and datasets
- `diff`: differences between two versions, and the datasets to rebuild
- `diff_format`: lines of text that describe a diff
- `runtime_check`: checks that the runtimes and file locations of a DAG are configured

Next: aaiclick.catalog.deploy.
"""

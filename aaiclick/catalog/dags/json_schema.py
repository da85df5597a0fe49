"""JSON Schema of DAG files, generated from the model, for completion and checks in editors.

`python -m aaiclick.catalog.dags.json_schema` writes it to `dag.schema.json` next to this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aaiclick.catalog.dags.model import Dag
from aaiclick.catalog.operators.config import BUILT_IN

SCHEMA_FILE = Path(__file__).with_name("dag.schema.json")


def build_json_schema() -> dict[str, object]:
    """Return the schema, including the settings of each built-in operator."""
    schema = Dag.model_json_schema(ref_template="#/$defs/{model}")
    definitions: dict[str, Any] = schema["$defs"]
    choices: list[dict[str, Any]] = []
    for operator in BUILT_IN:
        config = operator.config.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(config.pop("$defs", {}))
        definitions[operator.config.__name__] = config
        choices.append(
            {
                "if": {"properties": {"operator": {"const": operator.name}}, "required": ["operator"]},
                "then": {"properties": {"config": {"$ref": f"#/$defs/{operator.config.__name__}"}}},
            }
        )
    definition_schema = definitions["DefinitionSpec"]
    definition_schema["allOf"] = choices
    definition_schema["properties"]["operator"] = {
        "description": definition_schema["properties"]["operator"].get("description", ""),
        "anyOf": [{"enum": [operator.name for operator in BUILT_IN]}, {"type": "string"}],
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "aaiclick DAG", **schema}


def format_json_schema() -> str:
    return json.dumps(build_json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(format_json_schema(), encoding="utf-8")

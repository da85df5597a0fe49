"""The JSON Schema of DAG files, made from the model: what editors complete and check while one types.

`python -m aaiclick.catalog.dags.schema` writes it to `dag.schema.json` beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aaiclick.catalog.dags.model import Dag
from aaiclick.catalog.operators.built_in import BUILT_IN

FILE = Path(__file__).with_name("dag.schema.json")


def json_schema() -> dict[str, Any]:
    """The schema, with the settings of each built-in operator where it is used."""
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
    job = definitions["JobSpec"]
    job["allOf"] = choices
    job["properties"]["operator"] = {
        "description": job["properties"]["operator"].get("description", ""),
        "anyOf": [{"enum": [each.name for each in BUILT_IN]}, {"type": "string"}],
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "aaiclick DAG", **schema}


def as_text() -> str:
    return json.dumps(json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(as_text(), encoding="utf-8")

"""Content hashes of DAGs, definitions and datasets.

The canonical form leaves out comments, the order of keys and definitions, and values equal to their default:
reformatting a file keeps its version, and a new key with a default changes no hash.

The hash of a dataset covers what its rows depend on (operator, settings, inputs, strategies) and the hashes of its
inputs. A change therefore affects exactly the dataset and everything downstream, and reverting it restores the old hash
and its data. Attempts, timeouts, schedules, scaling, runtime, secrets and data tests are not part of it: a changed test
applies from the next update on.

Outputs with `reset_outputs` belong to one version, so its hash is part of theirs: every version begins with empty
generations, and the rows of the version before stay for its readers and for a rollback.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container
from typing import Any

from aaiclick.catalog.dags.model import REJECTED_SUFFIX, Dag, DefinitionSpec
from aaiclick.catalog.dags.toposort import sort_topologically

HASHED_FIELDS = ("operator", "config", "inputs", "execution_strategy", "update_strategy", "unique_key")

UNHASHED_OUTPUT_FIELDS = {"description", "lineage", "name", "tests", "freshness"}


def hash_json(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_dag(dag: Dag) -> dict[str, Any]:
    """Return the DAG as plain data in canonical form."""
    data = dag.model_dump(mode="json", exclude_defaults=True)
    data["jobs"] = sorted((canonical_definition(job) for job in dag.jobs), key=lambda job: job["name"])
    data["publish"] = sorted(data.get("publish", []), key=lambda entry: entry["output"])
    data.pop("defaults", None)
    return data


def canonical_definition(job: DefinitionSpec) -> dict[str, Any]:
    return job.model_dump(mode="json", exclude_defaults=True)


def version_hash(dag: Dag) -> str:
    """Return the hash that identifies a version."""
    return hash_json(canonical_dag(dag))


def config_hash(job: DefinitionSpec) -> str:
    """Return the hash of everything that determines a definition's rows, apart from the content of its inputs."""
    data = canonical_definition(job)
    hashed = {key: data[key] for key in HASHED_FIELDS if key in data}
    if "inputs" in hashed:
        hashed["inputs"] = sorted(hashed["inputs"], key=hash_json)
    return hash_json(hashed)


def find_producers(dag: Dag) -> dict[str, DefinitionSpec]:
    """Return the definition that produces each output."""
    return {output.name: job for job in dag.jobs for output in job.outputs}


def find_output_keys(dag: Dag) -> dict[str, tuple[str, int]]:
    """Return the key that identifies each output across versions: definition name and output index."""
    return {output.name: (job.name, index) for job in dag.jobs for index, output in enumerate(job.outputs)}


def find_upstream(dag: Dag) -> dict[str, list[str]]:
    """Return the names of the definitions that each definition reads from."""
    producers = find_producers(dag)
    return {
        job.name: [producers[base_output(input_.output, producers)].name for input_ in job.inputs if input_.output]
        for job in dag.jobs
    }


def base_output(name: str, outputs: Container[str]) -> str:
    """Return the output that a name stands for: the rejected rows of an output belong to it."""
    return name if name in outputs else name.removesuffix(REJECTED_SUFFIX)


def dataset_hashes(dag: Dag) -> dict[str, str]:
    """Return the hash of each output, in topological order."""
    jobs = {job.name: job for job in dag.jobs}
    hashes: dict[str, str] = {}
    for name in sort_topologically(find_upstream(dag)):
        job = jobs[name]
        inputs = sorted(
            f"dataset:{input_.dataset}"
            if input_.dataset
            else f"{input_.output}:{hashes[base_output(str(input_.output), hashes)]}"
            for input_ in job.inputs
        )
        for index, output in enumerate(job.outputs):
            shape = output.model_dump(mode="json", exclude_defaults=True, exclude=UNHASHED_OUTPUT_FIELDS)
            parts = [job.name, index, config_hash(job), inputs, shape]
            if job.bootstrap is not None and job.bootstrap.reset_outputs:
                parts.append(version_hash(dag))
            hashes[output.name] = hash_json(parts)
    return hashes

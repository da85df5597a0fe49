"""What a DAG is known by: hashes of content, not of text.

The canonical form leaves out comments, order of keys and of jobs, and whatever equals its default: a file that says
the same in other words is the same version, and a new key with a default changes nobody's hash.

A dataset's hash is made of what its rows depend on (operator, settings, inputs, strategies) and of the hashes of its
inputs. So a change reaches exactly what it touches and all that is downstream, and going back gives the old hash, and
the old data. Attempts, timeouts, schedules, scaling, runtime and secrets decide how a job runs, not what it makes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from aaiclick.catalog.dags.graph import in_order
from aaiclick.catalog.dags.model import Dag, JobSpec

MAKES = ("operator", "config", "inputs", "execution_strategy", "update_strategy", "unique_key")


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(dag: Dag) -> dict[str, Any]:
    """The DAG as plain data, the same for every way to write it."""
    data = dag.model_dump(mode="json", exclude_defaults=True)
    data["jobs"] = sorted((canonical_job(job) for job in dag.jobs), key=lambda job: job["name"])
    data["publish"] = sorted(data.get("publish", []), key=lambda entry: entry["output"])
    data.pop("defaults", None)
    return data


def canonical_job(job: JobSpec) -> dict[str, Any]:
    return job.model_dump(mode="json", exclude_defaults=True)


def version_hash(dag: Dag) -> str:
    """The identity of a version."""
    return digest(canonical(dag))


def config_hash(job: JobSpec) -> str:
    """What a job makes from its inputs, whatever they hold."""
    data = canonical_job(job)
    made = {key: data[key] for key in MAKES if key in data}
    if "inputs" in made:
        made["inputs"] = sorted(made["inputs"], key=digest)
    return digest(made)


def producers(dag: Dag) -> dict[str, JobSpec]:
    """The job that makes each output."""
    return {output.name: job for job in dag.jobs for output in job.outputs}


def places(dag: Dag) -> dict[str, tuple[str, int]]:
    """What makes an output the same dataset in another version: its job, and which of the job's outputs it is."""
    return {output.name: (job.name, index) for job in dag.jobs for index, output in enumerate(job.outputs)}


def upstream(dag: Dag) -> dict[str, list[str]]:
    """The jobs that each job reads from."""
    made_by = producers(dag)
    return {job.name: [made_by[each.output].name for each in job.inputs if each.output] for job in dag.jobs}


def dataset_hashes(dag: Dag) -> dict[str, str]:
    """Of each output, inputs before what is made of them: what it is made by, and from what."""
    jobs = {job.name: job for job in dag.jobs}
    hashes: dict[str, str] = {}
    for name in in_order(upstream(dag)):
        job = jobs[name]
        inputs = sorted(
            f"dataset:{each.dataset}" if each.dataset else f"{each.output}:{hashes[str(each.output)]}"
            for each in job.inputs
        )
        for index, output in enumerate(job.outputs):
            shape = output.model_dump(mode="json", exclude_defaults=True, exclude={"description", "lineage", "name"})
            hashes[output.name] = digest([job.name, index, config_hash(job), inputs, shape])
    return hashes

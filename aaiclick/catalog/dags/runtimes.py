"""Which runtimes and places of files that a DAG names are set up, as far as the settings of this process say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aaiclick.catalog.dags.model import Dag
from aaiclick.catalog.dags.rules import Finding
from aaiclick.store.words import DEFAULT_ORG_SLUG
from aaiclick.targets import RuntimeTarget

HERE = ("pool", "dispatcher")
"""Runtimes that need nothing but a worker."""


def unknown_runtimes(dag: Dag, targets: Sequence[RuntimeTarget], org: str) -> Iterator[Finding]:
    """Jobs whose tasks nobody would be told of."""
    for index, job in enumerate(dag.jobs):
        if job.runtime not in HERE and not any(_takes(each, job.runtime, org) for each in targets):
            what = "FUNCTION" if job.runtime == "lambda" else "SQS_QUEUE_URL"
            whose = "" if org == DEFAULT_ORG_SLUG else f"@{org}"
            yield Finding(
                ("jobs", index, "runtime"),
                f"The runtime {job.runtime!r} is not set up for the organisation {org!r}.",
                f"Set AAICLICK_RUNTIMES={job.runtime}{whose}={what} where DAGs are deployed and where workers run; "
                "see docs/runtimes.md.",
            )


def _takes(target: RuntimeTarget, runtime: str, org: str) -> bool:
    if target.name != runtime:
        return False
    if target.org is None:
        return runtime != "lambda" or org == DEFAULT_ORG_SLUG
    return target.org == org


def foreign_prefixes(dag: Dag, prefixes: Sequence[tuple[str, str]], org: str) -> Iterator[Finding]:
    """Outputs that would be kept where the organisation has no place: a file must not say where we may write."""
    own = [place for whose, place in prefixes if whose == org]
    remedy = f"Use a place below {', '.join(own)}." if own else "Set AAICLICK_PARQUET_PREFIXES; see docs/dags.md."
    for index, job in enumerate(dag.jobs):
        for nth, output in enumerate(job.outputs):
            prefix = f"{output.storage.prefix or ''}".rstrip("/") + "/"
            if output.storage.kind == "parquet" and not any(prefix.startswith(place) for place in own):
                path = ("jobs", index, "outputs", nth, "storage", "prefix")
                yield Finding(path, f"The organisation {org!r} may not keep files there.", remedy)

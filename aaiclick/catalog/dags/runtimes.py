"""Which runtimes of a DAG are set up, as far as the settings of this process say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aaiclick.catalog.dags.model import Dag
from aaiclick.catalog.dags.rules import Finding
from aaiclick.settings import RuntimeTarget
from aaiclick.store.words import DEFAULT_ORG_SLUG

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

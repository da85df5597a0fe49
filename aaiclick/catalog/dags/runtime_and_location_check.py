"""Checks that the runtimes and file locations of a DAG are configured in the settings of this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aaiclick.catalog.dags.findings import Finding
from aaiclick.catalog.dags.model import Dag
from aaiclick.server_addresses import RuntimeEndpoint
from aaiclick.store.enums import DEFAULT_ORG_SLUG

LOCAL_RUNTIMES = ("pool", "dispatcher")
"""Runtimes that need only a worker."""


def find_unknown_runtimes(dag: Dag, endpoints: Sequence[RuntimeEndpoint], org: str) -> Iterator[Finding]:
    """Yield findings for definitions with a runtime that has no endpoint."""
    for index, definition in enumerate(dag.jobs):
        if definition.runtime not in LOCAL_RUNTIMES and not any(
            _accepts_runtime(target, definition.runtime, org) for target in endpoints
        ):
            what = "FUNCTION" if definition.runtime == "lambda" else "SQS_QUEUE_URL"
            org_suffix = "" if org == DEFAULT_ORG_SLUG else f"@{org}"
            yield Finding(
                ("jobs", index, "runtime"),
                f"The runtime {definition.runtime!r} is not configured for the organisation {org!r}.",
                f"Set AAICLICK_RUNTIMES={definition.runtime}{org_suffix}={what} where DAGs are deployed "
                "and where workers run; see docs/runtimes.md.",
            )


def _accepts_runtime(endpoint: RuntimeEndpoint, runtime: str, org: str) -> bool:
    if endpoint.name != runtime:
        return False
    if endpoint.org is None:
        return runtime != "lambda" or org == DEFAULT_ORG_SLUG
    return endpoint.org == org


def find_foreign_prefixes(dag: Dag, prefixes: Sequence[tuple[str, str]], org: str) -> Iterator[Finding]:
    """Yield findings for outputs outside the organisation's file prefixes."""
    own_prefixes = [prefix for org_slug, prefix in prefixes if org_slug == org]
    remedy = (
        f"Use a location below {', '.join(own_prefixes)}."
        if own_prefixes
        else "Set AAICLICK_PARQUET_PREFIXES; see docs/dags.md."
    )
    for index, definition in enumerate(dag.jobs):
        for output_index, output in enumerate(definition.outputs):
            prefix = f"{output.storage.prefix or ''}".rstrip("/") + "/"
            if output.storage.kind == "parquet" and not any(
                prefix.startswith(own_prefix) for own_prefix in own_prefixes
            ):
                path = ("jobs", index, "outputs", output_index, "storage", "prefix")
                yield Finding(path, f"The organisation {org!r} may not store files there.", remedy)

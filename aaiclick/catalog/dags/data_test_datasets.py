"""Datasets that the data tests of a definition read, and the datasets of rows that they reject."""

from __future__ import annotations

from aaiclick.catalog.dags.data_tests import THIS, DataTestSpec
from aaiclick.catalog.dags.model import REJECTED_SUFFIX, Dag, DefinitionSpec, Output
from aaiclick.catalog.queries.select_parser import find_datasets_read

REJECTED_INDEX = 1_000_000
"""Added to the index of an output: the index of the dataset of its rejected rows."""


def find_test_references(definition: DefinitionSpec) -> list[str]:
    """Return the names of the datasets that tests compare rows with, sorted."""
    return sorted({name for output in definition.outputs for test in output.tests for name in _read_by(test, output)})


def _read_by(test: DataTestSpec, output: Output) -> set[str]:
    names = {reference.partition(".")[0] for reference in (test.references or {}).values()}
    return names | (find_datasets_read(test.sql) - {THIS, output.name} if test.sql else set[str]())


def rejected_output(output: Output) -> Output:
    """Return the output for rejected rows: always a table, also if the output is stored in files."""
    return Output(name=output.name + REJECTED_SUFFIX, partition_by=output.partition_by)


def find_rejected_keys(dag: Dag) -> dict[str, tuple[str, int]]:
    """Return the key of the dataset of rejected rows of each output with a quarantine, by the name of the output."""
    return {
        output.name: (job.name, REJECTED_INDEX + index)
        for job in dag.jobs
        for index, output in enumerate(job.outputs)
        if output.has_quarantine
    }

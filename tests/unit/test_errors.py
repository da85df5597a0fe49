"""Errors carry what happened and what to do, and survive a trip between processes."""

import pickle

import pytest

from aaiclick import errors
from aaiclick.errors import AaiclickError


def every_error():
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AaiclickError)]


@pytest.mark.parametrize("kind", every_error())
def test_an_error_reads_as_what_then_remedy(kind):
    error = kind("The thing broke.", remedy="Mend it.")
    assert str(error) == "The thing broke.\nMend it."
    assert str(kind("The thing broke.")) == "The thing broke."


@pytest.mark.parametrize("kind", every_error())
def test_an_error_survives_another_process(kind):
    error = pickle.loads(pickle.dumps(kind("The thing broke.", remedy="Mend it.")))
    assert (type(error), error.what, error.remedy) == (kind, "The thing broke.", "Mend it.")


@pytest.mark.parametrize("kind", every_error())
def test_the_tree_at_the_top_names_every_error(kind):
    assert kind.__name__ in (errors.__doc__ or "")
    assert kind.exit_code in (1, 2, 3, 4, 5)

"""Errors carry what happened and what to do, and survive a trip between processes."""

import pickle

import pytest

from aaiclick import errors
from aaiclick.catalog import errors as of_the_catalogue
from aaiclick.data import errors as of_data
from aaiclick.errors import AaiclickError

EXIT_CODES = {
    1: """AaiclickError SchemaError ConflictError SecretError LeaseLost DeployError DataError StaleObjectError
        ObjectExistsError ColumnNotFoundError ColumnNameError DataTypeError ConversionError LengthError
        IngestError QueryError""",
    2: """SettingsError HomeError EntrypointError SubmitError CycleError LimitError ScheduleError RequestError
        CatalogError DagError OperatorError DatasetError QueryRefusedError LineageError
        NoContextError WhereError ForbiddenAddressError""",
    3: "NotFoundError UnknownTableError ObjectNotFoundError",
    4: "UnauthorisedError ForbiddenError",
    5: "StackError UnreachableError UnansweredError UnsupportedServerError",
}
"""What a script can tell from how a command ended."""


def every_error(*modules):
    return [
        kind
        for module in modules or (errors,)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, AaiclickError)
    ]


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


def test_every_error_has_the_exit_code_of_the_table():
    found = {kind.__name__: kind.exit_code for kind in every_error(errors, of_the_catalogue, of_data)}
    assert found == {name: code for code, names in EXIT_CODES.items() for name in names.split()}

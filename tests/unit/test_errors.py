"""Errors: message and remedy, pickling, exit codes."""

import pickle

import pytest

from aaiclick import errors
from aaiclick.catalog import errors as catalog_errors
from aaiclick.data import errors as data_errors
from aaiclick.errors import AaiclickError

EXIT_CODES = {
    1: """AaiclickError SchemaError ConflictError SecretError DeliveryError LeaseLost DeployError DataError
        StaleObjectError ObjectExistsError ColumnNotFoundError ColumnNameError DataTypeError ConversionError LengthError
        UnreadValueError IngestError QueryError DataTestError InvalidTestError UserCodeError JobFailedError""",
    2: """SettingsError HomeError EntrypointError SubmitError PlaceholderError PlaceholderAttributeError
        CycleError LimitError ScheduleError RequestError
        CatalogError AnalysisLimitError DagError OperatorError DatasetError QueryRefusedError LineageError
        NoContextError NotAwaitedError UnknownMethodError ProtectedError WhereError ForbiddenAddressError""",
    3: "NotFoundError UnknownTableError ObjectNotFoundError",
    4: "UnauthorisedError ForbiddenError",
    5: "StackError UnreachableError UnansweredError UnsupportedServerError",
}
"""Exit code of a command → errors."""


def list_errors(*modules):
    return [
        error_class
        for module in modules or (errors,)
        for error_class in vars(module).values()
        if isinstance(error_class, type) and issubclass(error_class, AaiclickError)
    ]


@pytest.mark.parametrize("error_class", list_errors())
def test_error_text_is_message_then_remedy(error_class):
    error = error_class("The thing broke.", remedy="Repair it.")
    assert str(error) == "The thing broke.\nRepair it."
    assert str(error_class("The thing broke.")) == "The thing broke."


@pytest.mark.parametrize("error_class", list_errors())
def test_errors_can_be_pickled(error_class):
    error = pickle.loads(pickle.dumps(error_class("The thing broke.", remedy="Repair it.")))
    assert (type(error), error.what, error.remedy) == (error_class, "The thing broke.", "Repair it.")


@pytest.mark.parametrize("error_class", list_errors())
def test_module_docstring_names_every_error(error_class):
    assert error_class.__name__ in (errors.__doc__ or "")


def test_exit_codes_of_errors():
    classes = list_errors(errors, catalog_errors, data_errors)
    exit_codes = {error_class.__name__: error_class.exit_code for error_class in classes}
    assert exit_codes == {name: code for code, names in EXIT_CODES.items() for name in names.split()}

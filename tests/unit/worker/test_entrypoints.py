"""A task's name decides what code runs, so it can name only code that was meant to be run."""

import sys

import pytest

from aaiclick.errors import EntrypointError
from aaiclick.orchestration import handler, task
from aaiclick.orchestration.worker.entrypoints import MARK, Entrypoints


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module of the user's own."""
    (tmp_path / "users_code.py").write_text(
        "imported = True\ndef work(): return 'worked'\nnumber = 3\n"
        "class Holder:\n    @staticmethod\n    def inner(): pass\n"
        "from functools import partial\nfrom os import system\nfrom click import echo\n"
        "from json import dumps as work_too\n"
        "half = partial(work)\nshell = partial(system, 'true')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "users_code"
    sys.modules.pop("users_code", None)


def test_the_users_own_function_is_found(own_module):
    assert Entrypoints().resolve("users_code.work", "users_code.work")() == "worked"
    assert Entrypoints().resolve("x", "users_code:work")() == "worked"


@pytest.mark.parametrize(
    "entrypoint",
    ["os.system", "subprocess.run", "builtins.eval", "posix.system", "shutil.rmtree", "code.interact", "pty.spawn"],
)
def test_the_standard_library_is_refused(entrypoint):
    with pytest.raises(EntrypointError, match="which a task may not name unasked"):
        Entrypoints().resolve("x", entrypoint)


@pytest.mark.parametrize("entrypoint", ["click.echo", "rich.print", "aaiclick.local.stop_stack", "pytest.main"])
def test_installed_packages_and_aaiclick_itself_are_refused(entrypoint):
    with pytest.raises(EntrypointError, match="which a task may not name unasked"):
        Entrypoints().resolve("x", entrypoint)


@pytest.mark.parametrize("name", ["system", "shell", "echo", "partial", "work_too"])
@pytest.mark.parametrize("allowed", [(), ("users_code",)])
def test_what_a_module_has_imported_for_itself_is_refused(own_module, name, allowed):
    with pytest.raises(EntrypointError, match="it is imported there"):
        Entrypoints(allowed).resolve("x", f"users_code.{name}")


def test_a_part_of_the_users_own_function_is_one(own_module):
    assert Entrypoints().resolve("x", "users_code.half")() == "worked"


def test_a_refused_module_is_not_even_imported():
    sys.modules.pop("antigravity", None)
    with pytest.raises(EntrypointError):
        Entrypoints().resolve("x", "antigravity.fly")
    assert "antigravity" not in sys.modules


def test_a_marked_function_may_be_anywhere(monkeypatch):
    import click

    monkeypatch.setattr(click.echo, MARK, True, raising=False)
    assert Entrypoints().resolve("x", "click.echo") is click.echo


def test_the_setting_allows_those_modules_and_no_others(own_module):
    allowed = Entrypoints(("click",))
    assert allowed.resolve("x", "click.echo").__name__ == "echo"
    with pytest.raises(EntrypointError, match=r"outside of the allowed modules \(click\)"):
        allowed.resolve("x", "users_code.work")
    with pytest.raises(EntrypointError, match="outside of the allowed modules"):
        allowed.resolve("x", "clickhouse_connect.get_client")


@pytest.mark.parametrize(
    ("entrypoint", "said"),
    [
        ("users_code.missing", "has no function 'missing'"),
        ("users_code.number", "is not a function"),
        ("no_such_module.work", "cannot be imported"),
        ("work", "is no entrypoint"),
        ("", "is no entrypoint"),
        ("users_code.work()", "is no entrypoint"),
        ("users_code..work", "is no entrypoint"),
        ("users code.work", "is no entrypoint"),
        ("../../etc/passwd", "is no entrypoint"),
    ],
)
def test_a_bad_name_is_explained(own_module, entrypoint, said):
    with pytest.raises(EntrypointError, match=said) as caught:
        Entrypoints().resolve("x", entrypoint)
    assert caught.value.remedy


def test_a_handler_is_found_by_its_type():
    @handler("test:send")
    def send() -> None: ...

    assert handler("test:send")(send) is send
    assert Entrypoints().resolve("test:send", None) is send
    with pytest.raises(EntrypointError, match="no handler for tasks of type 'test:other'"):
        Entrypoints().resolve("test:other", None)


def test_two_handlers_of_one_type_are_refused():
    def one() -> None: ...
    def two() -> None: ...

    handler("test:twice")(one)
    with pytest.raises(EntrypointError, match="Two handlers for tasks of type 'test:twice'"):
        handler("test:twice")(two)


@task
def decorated() -> str:
    return "done"


def test_a_decorated_function_is_unwrapped():
    assert Entrypoints(("nothing",)).resolve("x", f"{__name__}.decorated")() == "done"

"""Entrypoints: only code that the worker's operator allowed can be resolved."""

import importlib
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from aaiclick.errors import EntrypointError
from aaiclick.orchestration import create_task, handler, task
from aaiclick.orchestration.worker.entrypoints import OWN_TASKS, Entrypoints

REFUSED = "is in no module of your own|cannot be imported|cannot be run"


@pytest.fixture(autouse=True)
def _forget_modules(tmp_path):
    """Remove modules that a test created."""
    before = set(sys.modules)
    yield
    created = {name: sys.modules[name] for name in set(sys.modules) - before}
    paths = {name: f"{module!r} {getattr(module, '__path__', '')}" for name, module in created.items()}
    for name in (name for name, path in paths.items() if str(tmp_path) in path):
        del sys.modules[name]  # after all paths: a namespace package needs its parent to show its own
    importlib.invalidate_caches()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a module of the user's own, as a worker is started in one."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "users_code.py").write_text(
        "import functools\nfrom functools import partial\nfrom os import system\nfrom click import echo\n"
        "from json import dumps as work_too\nfrom aaiclick.orchestration import job, task\n"
        "import users_helpers\nfrom users_helpers import helped\n"
        "imported = True\nnumber = 3\n"
        "def work(): return 'worked'\n"
        "class Holder:\n    def __call__(self): pass\n    def method(self): return 'method'\n"
        "holder = Holder()\nmethod = holder.method\nappend = [].append\n"
        "half = partial(work)\nshell = partial(system, 'true')\nnested = partial(partial(system), 'true')\n"
        "cached = functools.lru_cache(system)\nwrapped = functools.wraps(system)(lambda: None)\n"
        "marked = task(system)\nanonymous = lambda: 'anonymous'\n"
        "@functools.lru_cache\ndef remembered(): return 'remembered'\n"
        "@task\ndef decorated(): return 'decorated'\n"
        "@job\ndef built(): decorated()\n"
        "def __getattr__(name):\n    import os\n    return getattr(os, name)\n"
    )
    (directory / "users_helpers.py").write_text("def helped(): return 'helped'\n")
    monkeypatch.syspath_prepend(directory)
    return directory


def load(directory: Path, entrypoint: str):
    return Entrypoints(directory=directory).load(entrypoint, shared=False)


def plant(directory: Path, name: str = "planted") -> None:
    """Write a module that records its import."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.py").write_text("import sys\nsys.planted_ran = True\ndef work(): return 'planted'\n")


@pytest.fixture
def trace(monkeypatch):
    """Whether code of a planted module ran."""
    monkeypatch.setattr(sys, "planted_ran", False, raising=False)
    return lambda: sys.planted_ran


# --- code below the worker's directory -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("work", "worked"),
        ("half", "worked"),
        ("helped", "helped"),  # a re-export: its own module could be named as well
        ("remembered", "remembered"),
        ("anonymous", "anonymous"),
        ("decorated", "decorated"),
        ("method", "method"),
    ],
)
def test_functions_of_own_modules_are_found(project, name, value):
    assert load(project, f"users_code.{name}")() == value
    assert load(project, f"users_code:{name}")() == value


def test_job_function_resolves_to_a_function_that_adds_tasks(project):
    built = load(project, "users_code.built")()
    assert built.__name__ == "_add_to_running_job"
    built.close()


@pytest.mark.parametrize(
    "name",
    ["system", "shell", "nested", "echo", "partial", "work_too", "cached", "wrapped", "marked", "append", "task"],
)
@pytest.mark.parametrize("named", [(), ("users_code",)])
def test_imported_attributes_are_refused(project, name, named):
    with pytest.raises(EntrypointError, match=r"it is imported there|is not a function"):
        Entrypoints(named, directory=project).load(f"users_code.{name}", shared=False)


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("users_code.missing", "has no function 'missing'"),
        ("users_code.popen", "has no function 'popen'"),  # the module's __getattr__ would fetch os.popen
        ("users_code.__getattr__", "has no function '__getattr__'"),
        ("users_code.__builtins__", "has no function '__builtins__'"),
        ("users_code.number", "is not a function"),
        ("users_code.Holder", "is not a function"),
        ("users_code.holder", "is not a function"),
        ("users_code.users_helpers", "is not a function"),
        ("users_code.work.__globals__", "cannot be imported"),
        ("no_such_module.work", "cannot be imported"),
        ("work", "is no entrypoint"),
        ("", "is no entrypoint"),
        ("users_code.work()", "is no entrypoint"),
        ("users_code..work", "is no entrypoint"),
        ("users code.work", "is no entrypoint"),
        ("../../etc/passwd", "is no entrypoint"),
    ],
)
def test_a_bad_name_is_explained(project, entrypoint, message):
    with pytest.raises(EntrypointError, match=message) as caught:
        load(project, entrypoint)
    assert caught.value.remedy


def test_packages_and_namespace_packages_below_the_directory_are_own_code(project):
    plant(project / "own_namespace" / "steps")
    (project / "regular").mkdir()
    (project / "regular" / "__init__.py").write_text("")
    plant(project / "regular")
    assert load(project, "own_namespace.steps.planted.work")() == "planted"
    assert load(project, "regular.planted.work")() == "planted"


# --- code that is not the user's own ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entrypoint",
    [
        "os.system", "subprocess.run", "builtins.eval", "posix.system", "shutil.rmtree", "code.interact", "pty.spawn",
        "test.support.script_helper.make_script", "test.support.os_helper.rmtree", "_testcapi.run_in_subinterp",
        "antigravity.fly", "__hello__.main", "site.main", "_posixsubprocess.fork_exec", "ctypes.CDLL",
        "idlelib.run.main",
        "click.echo", "rich.print", "pytest.main", "pip.main", "_pytest.config.main", "aaiclick.local.stop_stack",
        "aaiclick.orchestration.worker.main._exit", "aaiclick.operators.chunk_tasks.seal",
        "__main__._exit", "__main__.main", "__main__:os",
    ],
)  # fmt: skip
@pytest.mark.parametrize("directory", ["project", "root", "prefix", "repository"])
def test_code_of_the_interpreter_and_of_packages_is_refused(project, entrypoint, directory):
    top = entrypoint.replace(":", ".").partition(".")[0]
    was_loaded = top in sys.modules
    places = {
        "project": project, "root": Path("/"), "prefix": Path(sys.base_prefix), "repository": Path(__file__).parents[3],
    }  # fmt: skip
    with pytest.raises(EntrypointError, match=REFUSED):
        load(places[directory], entrypoint)
    assert was_loaded or top not in sys.modules  # a refused module is not imported


def refused(project: Path, entrypoint: str) -> None:
    with pytest.raises(EntrypointError, match=REFUSED):
        load(project, entrypoint)


def test_a_user_site_is_refused_even_below_the_directory(project, trace, monkeypatch):
    base = project / "base"
    monkeypatch.setattr("site.ENABLE_USER_SITE", True)
    monkeypatch.setattr("site.USER_BASE", str(base))
    monkeypatch.setattr("site.USER_SITE", str(base / "packages"))
    plant(base / "packages")
    monkeypatch.syspath_prepend(base / "packages")
    refused(project, "planted.work")
    refused(project, "base.packages.planted.work")
    assert not trace()


def test_a_target_directory_of_pip_is_refused(project, trace, monkeypatch):
    plant(project / "vendor")
    (project / "vendor" / "planted-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(project / "vendor")
    refused(project, "planted.work")
    refused(project, "vendor.planted.work")
    plant(project / "old")
    (project / "old" / "planted-1.0-py3.11.egg-info").mkdir()
    (project / "old" / "planted-1.0-py3.11.egg-info" / "installed-files.txt").touch()
    refused(project, "old.planted.work")
    assert not trace()


def test_an_editable_project_is_own_code(project):
    """What `pip install -e .` leaves in a project is no sign of an installed package."""
    (project / "users_code.egg-info").mkdir()
    (project / "users_code.egg-info" / "top_level.txt").touch()
    assert load(project, "users_code.work")() == "worked"


def test_virtual_environments_below_the_directory_are_refused(project, trace, monkeypatch):
    packages = project / "env" / "lib" / "packages"
    plant(packages)
    (project / "env" / "pyvenv.cfg").touch()
    monkeypatch.syspath_prepend(packages)
    refused(project, "planted.work")
    refused(project, "env.lib.packages.planted.work")
    for name in ("site-packages", "dist-packages"):
        plant(project / name, name[:4])
        monkeypatch.syspath_prepend(project / name)
        refused(project, f"{name[:4]}.work")
    assert not trace()


def test_symbolic_links_do_not_bring_code_below_the_directory(project, trace, tmp_path, monkeypatch):
    plant(tmp_path / "elsewhere")
    (project / "linked.py").symlink_to(tmp_path / "elsewhere" / "planted.py")
    (project / "linked_directory").symlink_to(tmp_path / "elsewhere")
    (project / "linked_os.py").symlink_to(Path(sysconfig.get_path("stdlib")) / "os.py")
    for entrypoint in ("linked.work", "linked_directory.planted.work", "linked_os.system", "linked_os.popen"):
        refused(project, entrypoint)
    assert not trace()


def test_the_directory_itself_may_be_a_symbolic_link(project, tmp_path):
    (tmp_path / "current").symlink_to(project)
    assert load(tmp_path / "current", "users_code.work")() == "worked"


def test_modules_in_archives_are_refused(project, trace, monkeypatch):
    import zipfile

    plant(project)
    with zipfile.ZipFile(project / "archive.zip", "w") as archive:
        archive.write(project / "planted.py", "zipped.py")
    monkeypatch.syspath_prepend(project / "archive.zip")
    refused(project, "zipped.work")
    assert not trace()


def test_relative_paths_are_resolved(project, trace, tmp_path, monkeypatch):
    plant(tmp_path / "elsewhere")
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend("../elsewhere")
    refused(project, "planted.work")
    assert not trace()


def test_outside_package_is_not_imported_for_a_module_inside(project, trace, tmp_path, monkeypatch):
    """Importing a submodule runs its package first."""
    package = tmp_path / "elsewhere" / "outer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"import sys\nsys.planted_ran = True\n__path__ = [{str(project)!r}]\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    refused(project, "outer.users_code.work")
    assert not trace()


def test_module_that_replaces_itself_is_checked_again(project):
    (project / "users_swap.py").write_text("import pty, sys\nsys.modules[__name__] = pty\n")
    try:
        with pytest.raises(EntrypointError, match="is in no module of your own"):
            load(project, "users_swap.spawn")
    finally:
        sys.modules.pop("users_swap", None)


def test_files_that_servers_write_are_not_code(project, trace, tmp_path):
    plant(project / "data" / "user_files")
    entrypoints = Entrypoints(directory=project, data_directories=(project / "data", tmp_path))
    with pytest.raises(EntrypointError, match=REFUSED):
        entrypoints.load("data.user_files.planted.work", shared=False)
    assert not trace()
    assert entrypoints.load("users_code.work", shared=False)() == "worked"


# --- named modules, several organisations ----------------------------------------------------------------------------


def test_named_modules_may_be_anywhere(project):
    named = Entrypoints(("click",), directory=project)
    assert named.load("click.echo", shared=False).__name__ == "echo"
    assert named.load("click.echo", shared=True).__name__ == "echo"
    assert named.load("users_code.work", shared=False)() == "worked"
    with pytest.raises(EntrypointError, match=REFUSED):
        named.load("clickhouse_connect.get_client", shared=False)


def test_without_a_directory_only_named_modules_run(project):
    named = Entrypoints(("click",))
    with pytest.raises(EntrypointError, match=r"outside of the allowed modules \(click\)"):
        named.load("users_code.work", shared=False)


def test_main_cannot_be_named(project):
    with pytest.raises(EntrypointError, match="a different program in every process"):
        Entrypoints(("__main__",), directory=project).load("__main__.main", shared=False)


def test_second_organisation_disallows_cached_functions(project):
    entrypoints = Entrypoints(("click",), directory=project, in_process=True)
    function = importlib.import_module("users_code").helped
    path = create_task(function).entrypoint
    for entrypoint in ("users_code.work", "users_code.decorated", path):
        assert entrypoints.resolve("x", entrypoint, shared=False)
        with pytest.raises(EntrypointError, match="with several organisations") as caught:
            entrypoints.resolve("x", entrypoint, shared=True)
        assert entrypoint in caught.value.what
        assert f"--import {entrypoint.partition('.')[0]}" in str(caught.value.remedy)


# --- handlers, own tasks, functions of this process ------------------------------------------------------------------


def test_a_handler_is_found_by_its_type():
    @handler("test:send")
    def send() -> None: ...

    assert handler("test:send")(send) is send
    own = Entrypoints(directory=Path(__file__).parents[3])
    assert own.resolve("test:send", None, shared=False) is send
    with pytest.raises(EntrypointError, match="no handler for tasks of type 'test:other'"):
        own.resolve("test:other", None, shared=False)
    with pytest.raises(EntrypointError, match="with several organisations"):
        own.resolve("test:send", None, shared=True)
    assert Entrypoints(("tests",)).resolve("test:send", None, shared=True) is send


def test_named_modules_are_imported_for_their_handlers(project):
    text = "from aaiclick.orchestration import handler\n@handler('test:late')\ndef late(): pass\n"
    (project / "users_handlers.py").write_text(text)
    (project / "users_broken.py").write_text("import users_missing\n")
    assert Entrypoints(("not_installed", "users_handlers")).resolve("test:late", None, shared=True).__name__ == "late"
    with pytest.raises(EntrypointError, match="'users_broken' of AAICLICK_TASK_MODULES cannot be imported: No module"):
        Entrypoints(("users_broken",)).resolve("test:later", None, shared=False)


def test_a_handler_of_an_installed_package_must_be_named(project):
    import click

    handler("test:echo")(click.echo)
    with pytest.raises(EntrypointError, match="in no module of your own"):
        Entrypoints(directory=project).resolve("test:echo", None, shared=False)
    assert Entrypoints(("click",), directory=project).resolve("test:echo", None, shared=False) is click.echo


def test_two_handlers_of_one_type_are_refused():
    def one() -> None: ...
    def two() -> None: ...

    handler("test:twice")(one)
    with pytest.raises(EntrypointError, match="Two handlers for tasks of type 'test:twice'"):
        handler("test:twice")(two)


@task
def decorated() -> str:
    return "done"


def test_functions_of_this_process_run_in_this_process_only(tmp_path):
    entrypoint = decorated.task().entrypoint
    assert Entrypoints(directory=tmp_path, in_process=True).load(entrypoint, shared=False)() == "done"
    refused(tmp_path, entrypoint)


@pytest.mark.parametrize(
    "entrypoint", [f"{module}.{name}" for module, names in OWN_TASKS.items() for name in sorted(names)]
)
def test_builtin_tasks_are_always_allowed(entrypoint):
    function = Entrypoints(("nothing",)).load(entrypoint, shared=True)
    assert f"{function.__module__}.{function.__qualname__}" == entrypoint


SCRIPT = """
from aaiclick.orchestration import create_task, task
from aaiclick.orchestration.worker.entrypoints import Entrypoints
from pathlib import Path
@task
def step(): return 'stepped'
if __name__ == "__main__":
    entrypoint = step.task().entrypoint
    function = Entrypoints(directory=Path.cwd(), in_process=True).load(entrypoint, shared=False)
    print(entrypoint, function is step.function)
"""


@pytest.mark.parametrize(
    ("file", "arguments", "entrypoint"),
    [
        ("script.py", ["script.py"], "script.step"),
        ("package/script.py", ["-m", "package.script"], "package.script.step"),
        ("with-hyphen.py", ["with-hyphen.py"], "__main__.step"),
        ("-", ["-c", SCRIPT], "__main__.step"),
    ],
)
def test_a_script_names_its_tasks_by_its_module(tmp_path, file, arguments, entrypoint):
    """Other processes import the script by that name; this one runs the function that it has."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(SCRIPT)
    done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [entrypoint, "True"]
    if not entrypoint.startswith("__main__"):
        sys.path.insert(0, str(tmp_path))
        assert load(tmp_path, entrypoint)() == "stepped"
        sys.path.remove(str(tmp_path))

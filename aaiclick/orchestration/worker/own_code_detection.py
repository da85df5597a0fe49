"""Check whether a module is the user's own code: its file is below a directory and in no installed package.

Nothing is imported. Each part of a dotted name is looked up as the import system would, and the packages around a
module are checked like the module itself.
"""

from __future__ import annotations

import importlib
import pkgutil
import site
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

SITE_NAMES = frozenset({"site-packages", "dist-packages"})


def _interpreter_directories() -> frozenset[Path]:
    """Prefixes, standard library and site directories, as they are named and where they are."""
    names = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    names |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    names |= {*site.getsitepackages(), site.getusersitepackages(), site.getuserbase()}
    paths = {Path(name).absolute() for name in names}
    return frozenset(paths | {path.resolve() for path in paths})


class OwnCode:
    """Modules below a directory. The root directory contains no user code."""

    def __init__(self, directory: Path, data_directories: Sequence[Path] = ()) -> None:
        """Exclude `data_directories`: servers and tasks write there."""
        self._directory = directory.resolve()
        data = {path.resolve() for path in data_directories}
        self._excluded = _interpreter_directories() | {
            path for path in data if path not in _with_parents(self._directory)
        }

    def contains_module(self, module_name: str) -> bool:
        files = find_files(module_name)
        if not files or files[-1] is None:  # a namespace package has no functions
            return False
        return all(self._contains_file(Path(file)) for file in files if file is not None)

    def _contains_file(self, file: Path) -> bool:
        """Check the path and the target of symbolic links. Modules in archives are not files and must be named."""
        real = file.resolve()
        if self._directory == Path(self._directory.anchor) or not real.is_relative_to(self._directory):
            return False
        return real.is_file() and not any(self._is_installed(path) for path in {file.absolute(), real})

    def _is_installed(self, file: Path) -> bool:
        return any(parent in self._excluded or _is_installation(parent) for parent in file.parents)


def _with_parents(directory: Path) -> set[Path]:
    return {directory, *directory.parents}


def _is_installation(directory: Path) -> bool:
    """Whether it is a site directory, a virtual environment, or what `pip --target` wrote to."""
    if directory.name in SITE_NAMES or directory.suffix == ".egg":
        return True
    if (directory / "pyvenv.cfg").exists() or (directory / "conda-meta").exists():
        return True
    return any(directory.glob("*.dist-info")) or any(directory.glob("*.egg-info/installed-files.txt"))


def find_files(module_name: str) -> list[str | None]:
    """The files of a module and of the packages around it, outermost first; empty if there is no such module."""
    files = _find_files(module_name)
    if not files:  # a module written after the import system cached the contents of its directory
        importlib.invalidate_caches()
        files = _find_files(module_name)
    return files


def _find_files(module_name: str) -> list[str | None]:
    files: list[str | None] = []
    search: Sequence[str] | None = None
    parts = module_name.split(".")
    for n in range(1, len(parts) + 1):
        location = _locate_module(".".join(parts[:n]), search)
        if location is None or (location[1] is None and n < len(parts)):
            return []
        file, search = location
        files.append(file)
    return files


def _locate_module(name: str, search: Sequence[str] | None) -> tuple[str | None, Sequence[str] | None] | None:
    """The file of a module and the directories of its submodules, imported or not; None if there is no such module."""
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None) or _spec_origin(getattr(module, "__spec__", None))
        path = getattr(module, "__path__", None)
        return file, None if path is None else list(path)
    spec = _find_top_level(name) if search is None else _find_in_package(name, search)
    if spec is None:
        return None
    locations = spec.submodule_search_locations
    return _spec_origin(spec), None if locations is None else list(locations)


def _find_top_level(name: str) -> ModuleSpec | None:
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    return next((spec for find in finders if find is not None and (spec := find(name, None, None))), None)


def _find_in_package(name: str, search: Sequence[str]) -> ModuleSpec | None:
    """In the directories of the package. Not by `sys.meta_path`: that needs the package to be imported."""
    portions: list[str] = []
    for entry in search:
        finder = pkgutil.get_importer(entry)
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        portions += (spec and spec.submodule_search_locations) or []
    if not portions:
        return None
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _spec_origin(spec: ModuleSpec | None) -> str | None:
    """File of a module spec; for built-in and frozen modules a text that is no path."""
    return None if spec is None else spec.origin

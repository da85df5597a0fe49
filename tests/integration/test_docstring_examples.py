"""Every public function and class has an example in its docstring, and each example runs as written."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from aaiclick import catalog, data, local, operators, orchestration
from aaiclick.data import DataContext, create_object_from_value, expectations
from aaiclick.settings import get_settings
from tests.documentation import ROOT, list_blocks, list_examples

PAGE = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
PACKAGES = {
    catalog: catalog.__all__,
    data: data.__all__,
    expectations: re.findall(r"\w+", re.findall(r"members: \[(.*)\]", PAGE)[0]),
    local: local.__all__,
    operators: operators.__all__,
    orchestration: orchestration.__all__,
}
NAMES = {name: getattr(module, name) for module in (data, orchestration) for name in module.__all__}
OWN_CONTEXT = {"DataContext", "LifecycleHandler", "LocalLifecycleHandler", "get_data_context"}
"""Examples that open a DataContext."""


@pytest.fixture
def folder(aaiclick_env, tmp_path, monkeypatch) -> Path:
    """A directory with the module of the reference page, in an own home."""
    (module,) = [block for block in list_blocks(ROOT / "docs/reference/python.md") if block.file]
    (tmp_path / "shop.py").write_text(module.text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AAICLICK_HOME", str(tmp_path / "home"))
    get_settings.cache_clear()
    return tmp_path


@pytest.mark.parametrize("module", PACKAGES, ids=lambda module: module.__name__)
async def test_every_public_function_has_an_example_that_runs(module, folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    shop = importlib.import_module("shop")
    examples = list_examples(module, PACKAGES[module])
    assert [example.name for example in examples if not example.text.strip()] == []
    public = {name: getattr(module, name) for name in PACKAGES[module]}
    for example in examples:
        path = folder / f"example_{example.name}.py"
        path.write_text(example.text, encoding="utf-8")
        names = vars(shop) | NAMES | public | {"__name__": path.stem, "Path": Path}
        if module is orchestration or example.name in OWN_CONTEXT:
            await example.run(path, names)
            continue
        async with DataContext():
            names["numbers"] = await create_object_from_value({"x": [1, 3, 2]})
            await example.run(path, names)


def test_the_reference_page_has_all_packages():
    assert {module.__name__ for module in PACKAGES} <= set(re.findall(r"^::: ([\w.]+)$", PAGE, re.MULTILINE))

"""What importing each part may load: the arrows of the design."""

import subprocess
import sys
from importlib import import_module
from pkgutil import walk_packages

import pytest

HEAVY = ("openvino", "gradio", "torch", "transformers", "optimum", "nncf")


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("pipeline", ()),
        ("pipeline.decoding.decoders", ()),
        ("pipeline.trace.record", ()),
        ("pipeline.request", ()),
        ("pipeline.models.store", ()),
        ("pipeline.runtime.kv_cache.*", ()),
        ("pipeline.dolly", ("openvino",)),
        ("pipeline.__main__", ("openvino",)),
        ("app", ()),
        ("ui.*", ("gradio",)),
    ],
)
def test_importing_loads_nothing_heavy(module, allowed):
    names = ", ".join(modules(module))
    code = f"import sys, {names}; print(*sys.modules.keys() & set({HEAVY!r}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()
    assert set(loaded) <= set(allowed)


def modules(name):
    """The module; of "package.*", every module in the package, found without importing them."""
    package = name.removesuffix(".*")
    if package == name:
        return [name]
    path = import_module(package).__path__
    return [package, *(module.name for module in walk_packages(path, f"{package}."))]


def test_openvino_reports_its_import_to_nobody():
    code = "import sys, pipeline.dolly; print(*(m for m in sys.modules if 'telemetry.' in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert loaded.split() == []

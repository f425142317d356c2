"""What importing each part may load: the arrows of the design."""

import subprocess
import sys
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import pytest

HEAVY = ("openvino", "gradio", "torch", "transformers", "optimum", "nncf", "ray")


@cache
def imported(module):
    """The names of all modules after `module` was imported, in a process of its own and silently.

    Of "package.*", every module in the package.
    """
    code = f"import sys, {', '.join(modules(module))}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return frozenset(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("pipeline", ()),
        ("pipeline.request", ()),
        ("pipeline.models.store", ()),
        ("pipeline.runtime.kv_cache.*", ()),
        ("pipeline.dolly", ("openvino",)),
        ("pipeline.__main__", ("openvino",)),
        ("app", ()),
        ("ui.*", ("gradio",)),
        ("serving.*", ()),
    ],
)
def test_importing_loads_nothing_heavy(module, allowed):
    assert imported(module) & set(HEAVY) <= set(allowed)


def test_serving_imports_the_pipeline_and_no_other_room():
    ours = {name.partition(".")[0] for name in imported("serving.*")}
    assert ours & {"app", "lab", "ui"} == set()
    assert "pipeline" in ours


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("pipeline.trace", ()),
        ("pipeline.trace.record", ()),
        ("pipeline.trace.recording", ()),
        ("pipeline.trace.metrics", ()),
        ("pipeline.trace.reader", ("numpy", "pydantic")),  # numpy, for the request
    ],
)
def test_importing_the_trace_loads_no_tokenizer_and_no_models(module, allowed):
    light = ("numpy", "pydantic", "tokenizers", "pipeline.text.tokenizer", "pipeline.dolly")
    assert imported(module) & {*HEAVY, *light} <= set(allowed)


@pytest.mark.parametrize("module", ["record", "recording", "metrics", "signatures"])
def test_a_trace_is_recorded_without_the_runtime(module):
    """The reader alone loads what a request may name."""
    loaded = imported(f"pipeline.trace.{module}")
    assert not [name for name in loaded if name.startswith("pipeline.runtime")]


def test_decoding_loads_numpy_and_nothing_else_that_was_installed():
    """And of the pipeline only errors: no other room."""
    code = f"""
import sys
before = set(sys.modules)
import {", ".join(modules("pipeline.decoding.*"))}
for name in sys.modules.keys() - before:
    file = getattr(sys.modules[name], "__file__", None) or ""
    if "site-packages" in file:
        print(name.partition(".")[0])
    elif name.startswith("pipeline."):
        print(".".join(name.split(".")[:2]))
"""
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()
    assert set(loaded) == {"numpy", "pipeline.decoding", "pipeline.errors"}


def modules(name):
    """The module; of "package.*", every module in the package, found without importing them."""
    package = name.removesuffix(".*")
    if package == name:
        return [name]
    path = import_module(package).__path__
    return [package, *(module.name for module in walk_packages(path, f"{package}."))]


def test_openvino_reports_its_import_to_nobody():
    assert not [name for name in imported("pipeline.dolly") if "telemetry." in name]

"""What importing each part may load: the arrows of the architecture."""

import subprocess
import sys
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import pytest

HEAVY = {"openvino", "gradio", "torch", "transformers", "optimum", "nncf", "ray"}
MODELS = {"numpy", "pydantic", "tokenizers", "pipeline.text.tokenizer", "pipeline.runtime"}


@cache
def imported(module):
    """The names of all modules after `module` was imported, in a process of its own and silently.

    Of "package.*", every module in the package.
    """
    return frozenset(ran(f"import sys, {', '.join(modules(module))}; print(*sys.modules)"))


def ran(code):
    """The words that a program prints, and nothing else."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    return done.stdout.split()


def modules(name):
    """The module; of "package.*", every module in the package, found without importing them."""
    package = name.removesuffix(".*")
    if package == name:
        return [name]
    path = import_module(package).__path__
    return [package, *(module.name for module in walk_packages(path, f"{package}."))]


@pytest.mark.parametrize(
    ("module", "forbidden", "allowed"),
    [
        ("pipeline", HEAVY, ()),
        ("pipeline.request", HEAVY, ()),
        ("pipeline.models.store", HEAVY, ()),
        ("pipeline.runtime.kv_cache.*", HEAVY, ()),
        ("pipeline.dolly", HEAVY, ("openvino",)),
        ("pipeline.__main__", HEAVY, ("openvino",)),
        ("app", HEAVY, ()),
        ("lab.__main__", HEAVY | {"scipy", "playwright"}, ()),
        ("ui.*", HEAVY, ("gradio",)),
        ("serving.*", HEAVY | {"app", "lab", "ui"}, ()),
        ("pipeline.trace", HEAVY | MODELS, ()),
        ("pipeline.trace.record", HEAVY | MODELS, ()),
        ("pipeline.trace.recording", HEAVY | MODELS, ()),
        ("pipeline.trace.metrics", HEAVY | MODELS, ()),
        ("pipeline.trace.signatures", HEAVY | MODELS, ()),
        # What a request may name.
        ("pipeline.trace.reader", HEAVY | MODELS, ("numpy", "pydantic", "pipeline.runtime")),
    ],
)
def test_importing_loads_nothing_that_the_room_must_not_know(module, forbidden, allowed):
    assert imported(module) & forbidden <= {*allowed}


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
    assert {*ran(code)} == {"numpy", "pipeline.decoding", "pipeline.errors"}


def test_openvino_reports_its_import_to_nobody():
    assert not [name for name in imported("pipeline.dolly") if "telemetry." in name]

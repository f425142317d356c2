"""What importing each part may load: the arrows of the design."""

import subprocess
import sys

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
        ("pipeline.dolly", ("openvino",)),
        ("pipeline.__main__", ("openvino",)),
        ("app", ()),
    ],
)
def test_importing_loads_nothing_heavy(module, allowed):
    code = f"import sys, {module}; print(*sys.modules.keys() & set({HEAVY!r}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()
    assert set(loaded) <= set(allowed)


def test_openvino_reports_its_import_to_nobody():
    code = "import sys, pipeline.dolly; print(*(m for m in sys.modules if 'telemetry.' in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert loaded.split() == []

"""The notebook runs from its folder, what it says is so, and its outputs are whole and small.

Its cells are executed in order, with the pair that other tests have loaded, which needs no Jupyter.
"""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.embedded import embedded

NOTEBOOK = Path(__file__).resolve().parents[1] / "notebooks" / "speculative-sampling.ipynb"
CELLS = json.loads(NOTEBOOK.read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def test_what_it_says_of_greedy_texts_and_of_its_round_by_hand_is_so(monkeypatch):
    monkeypatch.chdir(NOTEBOOK.parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("pipeline.dolly.Dolly", embedded)
    found = {}
    for cell in CODE:
        exec("".join(cell["source"]), found)
    assert sys.path[0] == str(NOTEBOOK.parents[1])
    assert found["made"] == found["expected"]
    assert found["passes"] < len(found["expected"])
    assert [found[name].identical for name in ("race", "auto", "trace")] == [True, True, None]
    drafted, verdict = found["drafted"], found["verdict"]
    assert found["emitted"] == [*drafted[: verdict.accepted], verdict.token]
    for rows in (found["target_probs"], found["draft_probs"]):
        assert rows.sum(axis=1) == pytest.approx(1, abs=1e-4)
    assert found["error"] < 1e-9
    difference = np.abs(found["logits"] - found["anew"]).max()
    assert difference <= (0 if found["dolly"].about["exact"] else 0.1)
    bars = ElementTree.fromstring(found["plot"]._repr_svg_()).findall("{*}rect")
    steps = sum(len(lane.steps) for lane in found["race"].lanes.values())
    assert len(bars) == 3 * steps + 3  # a part of a step each, and a legend


def test_its_committed_outputs_are_those_of_one_whole_run_and_small():
    assert [cell["execution_count"] for cell in CODE] == [*range(1, len(CODE) + 1)]
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result"}
    assert "stderr" not in {output.get("name") for output in outputs}
    shown = json.dumps(outputs)
    assert shown.count("identical: True") == 2
    assert "identical to the autoregressive text: True" in shown
    assert not re.search(r"(?<![\w<.])(/[a-z]+){2,}/|[A-Z]:\\\\|0x[0-9a-f]{6}", shown)  # no paths
    assert NOTEBOOK.stat().st_size < 300_000

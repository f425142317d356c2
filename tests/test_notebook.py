"""The notebook runs from its folder, what it says is so, and its outputs are whole and small.

Its cells are executed in order by Python alone, which needs no Jupyter.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "speculative-sampling.ipynb"
CELLS = json.loads(NOTEBOOK.read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
FACTS = """
print(json.dumps({
    "texts": [made, expected],
    "passes": passes,
    "identical": [race.identical, auto.identical, trace.identical],
    "exact": dolly.about["exact"],
    "sums": target_probs.sum(axis=1).tolist() + draft_probs.sum(axis=1).tolist(),
    "by hand": emitted,
    "by verify": [*drafted[:verdict.accepted], verdict.token],
    "emitted minus target": error,
    "after a rollback": float(np.abs(logits - anew).max()),
    "svg": plot._repr_svg_(),
    "steps": sum(len(lane.steps) for lane in race.lanes.values()),
}))
"""


@pytest.fixture
def facts():
    code = "\n".join("".join(cell["source"]) for cell in CODE)
    done = subprocess.run(
        [sys.executable, "-c", f"import json\n{code}\n{FACTS}"],
        cwd=NOTEBOOK.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_it_says_of_greedy_texts_and_of_its_round_by_hand_is_so(facts):
    made, expected = facts["texts"]
    assert made == expected
    assert facts["passes"] < len(expected)
    assert facts["identical"] == [True, True, None]
    assert facts["by hand"] == facts["by verify"]
    assert facts["sums"] == pytest.approx([1] * 9, abs=1e-4)
    assert facts["emitted minus target"] < 1e-9
    assert facts["after a rollback"] <= (0 if facts["exact"] else 0.1)
    bars = ElementTree.fromstring(facts["svg"]).findall("{*}rect")
    assert len(bars) == 3 * facts["steps"] + 3  # a part of a step each, and a legend


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

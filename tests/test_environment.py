"""Memory that is given back to the system."""

import subprocess
import sys

import pytest

from ui.run.turn import Turn

_FREED = """
from pathlib import Path
from pipeline.environment import give_back_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [bytes(5_000) for _ in range(20_000)]
kept = blocks[::100]  # between them the C library keeps what is freed
blocks.clear()
before = resident()
give_back_memory()
assert before - resident() > 50_000_000, (before, resident())
"""


def test_memory_that_was_freed_between_blocks_in_use_is_given_back():
    done = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("whole", [True, False])
def test_a_run_gives_memory_back_before_the_next_one_begins(whole, monkeypatch):
    turn, order = Turn(), []
    monkeypatch.setattr("ui.run.turn.give_back_memory", lambda: order.append(turn.taken))
    run = turn.run(iter_of("first", "second"))
    assert next(run) == "first"
    assert [*run] == ["second"] if whole else run.close() is None
    assert order == [True]
    assert not turn.taken


def iter_of(*reports):
    yield from reports

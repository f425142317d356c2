"""Cores that replicas claim: each its own, until its process ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from serving import cores
from serving.cores import claim, shares

ROOT = Path(__file__).parents[1]
HOLD = "from serving.cores import claim; import pathlib, sys; " + (
    "held = claim(1, pathlib.Path(sys.argv[1])); print(*held.ids, flush=True); input()"
)


def release(claimed):
    """As the end of a process does."""
    claimed._locks.close()


@pytest.fixture
def machine(monkeypatch):
    """One with four cores of two threads: 0 and 4 are the same core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "_place", lambda core: (0, core % 4, core))


@pytest.mark.parametrize(
    ("size", "expected"),
    [(2, [(0, 4), (1, 5), (2, 6), (3, 7)]), (3, [(0, 4, 1), (5, 2, 6)]), (9, [])],
)
def test_shares_are_of_one_size_and_keep_the_threads_of_a_core_together(machine, size, expected):
    assert shares(size) == expected


def test_no_core_is_claimed_twice_and_whoever_finds_none_is_told(machine, tmp_path):
    claimed = [claim(2, tmp_path) for _ in range(4)]
    assert [each.ids for each in claimed] == shares(2)
    with pytest.raises(UserError, match="other replicas have the cores"):
        claim(2, tmp_path)
    release(claimed[2])
    assert claim(2, tmp_path).ids == claimed[2].ids


def test_a_larger_share_has_no_core_that_a_smaller_one_has(machine, tmp_path):
    one = claim(1, tmp_path)
    assert not {*one.ids} & {*claim(3, tmp_path).ids}


def test_what_a_killed_process_had_claimed_is_free(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as other:
        held = int(other.stdout.readline())
        assert held == shares(1)[0][0]
        if len(shares(1)) > 1:
            second = claim(1, tmp_path)
            assert held not in second.ids
            release(second)
        other.kill()
        other.wait()
    again = claim(1, tmp_path)
    assert again.ids == (held,)
    release(again)


def test_a_pinned_process_runs_all_its_threads_on_its_cores(tmp_path):
    code = """
import os, pathlib, sys, threading
from serving.cores import claim
waiting = threading.Event()
threading.Thread(target=waiting.wait).start()
cores = claim(1, pathlib.Path(sys.argv[1]))
cores.pin()
threads = [int(thread) for thread in os.listdir("/proc/self/task")]
assert len(threads) > 1
print({os.sched_getaffinity(thread) == {*cores.ids} for thread in threads})
waiting.set()
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "{True}\n"

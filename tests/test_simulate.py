"""How many replicas visitors need: the committed result, its tables and the search."""

import json
import math

import pytest

from lab.load.queueing import Queue
from lab.load.service import Service
from lab.load.simulate import NOTICED, PATIENCE, REPLICAS, need, rounded, simulated, tables
from lab.saved import RESULTS

RESULT = json.loads((RESULTS / "simulation.json").read_text())
RACES = (1.0, 2.0, 3.0, 10.0)
SERVICE = Service("any", 2, "measured", RACES, 10**9)


def test_the_committed_tables_are_those_of_the_committed_result():
    written = (RESULTS.parents[1] / "docs" / "hosting.md").read_text()
    for table in tables(RESULT):
        assert table in written


def test_the_formula_is_near_the_simulation_also_near_the_limit():
    """Its mean is exact with one replica, but for the visitors that were simulated, and an
    approximation with more.
    """
    for row in RESULT["rows"]:
        measured, formula = row["simulated"], row["formula"]
        assert measured["waiting"] == pytest.approx(formula["waiting"], abs=0.05)
        off = abs(measured["mean"] - formula["mean"])
        if row["replicas"] == 1:
            assert off < 5 * measured["error"]
        elif formula["mean"] >= NOTICED:
            assert off < 0.1 * formula["mean"] + 5 * measured["error"]
    busy = {(row["cores"], row["replicas"]) for row in RESULT["rows"] if row["utilisation"] > 0.75}
    assert busy == {(cores, replicas) for cores in (1, 2) for replicas in REPLICAS}


def test_the_need_is_the_fewest_replicas_that_keep_the_wait():
    found = need(SERVICE)
    rate = 1000 / 3600
    fewer = Queue(found["replicas"] - 1, rate, SERVICE.mean, SERVICE.variation)
    assert found["simulated"]["p95"] <= PATIENCE
    assert fewer.utilisation >= 1 or simulated(fewer, RACES)["p95"] > PATIENCE
    assert found["utilisation"] == rate * SERVICE.mean / found["replicas"] < 1
    assert found["all_cores"] == 2 * found["replicas"]
    assert found["all_bytes"] == found["replicas"] * SERVICE.memory_bytes


def test_numbers_are_rounded_at_any_depth_and_nothing_else_is():
    value = {"a": [math.pi, 12345.678], "b": "1.23456", "c": 123456, "d": True}
    assert rounded(value) == value | {"a": [3.142, 12350.0]}

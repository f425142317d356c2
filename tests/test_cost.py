"""What a token costs beside time: what a pass reads, what counts as CPU time, what RAPL counts."""

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest

from pipeline.__main__ import main
from pipeline.decoding import meter as meters
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.decoding.meter import Meter
from pipeline.runtime.ir import bytes_per_pass
from pipeline.trace.cost import RAPL, Cost
from pipeline.trace.reader import parse_trace
from pipeline.trace.record import StepRecord, Trace
from tests.traces import timed
from ui.verdict import verdict

ROWS, WIDTH = 10, 4


def model(tied: bool) -> ov.Model:
    """Looks up an INT8 embedding and multiplies by it, or by a float16 head of its own."""
    tokens = ops.parameter([-1], np.int64)

    def unpacked(levels: np.ndarray) -> ov.Node:
        half = ops.convert(ops.constant(levels), "f16")
        scaled = ops.multiply(half, ops.constant(np.ones((ROWS, 1), np.float16)))
        return ops.convert(scaled, "f32")

    embedding = unpacked(np.zeros((ROWS, WIDTH), np.uint8))
    embedded = ops.gather(embedding, tokens, ops.constant(np.int32(0)))
    head = embedding
    if not tied:
        head = ops.convert(ops.constant(np.zeros((ROWS, WIDTH), np.float16)), "f32")
    return ov.Model([ops.matmul(embedded, head, False, True)], [tokens])


def test_a_head_is_read_and_an_embedding_is_not() -> None:
    embedding, scales = ROWS * WIDTH, 2 * ROWS
    assert bytes_per_pass(model(tied=True)) == embedding + scales
    assert bytes_per_pass(model(tied=False)) == 2 * ROWS * WIDTH


def spent(cpu_ms: float, **fields: Any) -> Callable[[StepRecord], dict[str, Any]]:
    return lambda step: {"cpu_s": cpu_ms / 1e3 * (1 + len(step.drafted)), **fields}


def race(slow_ms: float, fast_ms: float, **fields: Any) -> Trace:
    """Whose steps took so much CPU time for each forward pass."""
    trace = timed(
        {AUTOREGRESSIVE: spent(slow_ms, **fields), SPECULATIVE: spent(fast_ms, **fields)},
        max_new_tokens=60,
    )
    sizes = {"target": {"pass_bytes": 5_000_000}, "draft": {"pass_bytes": 1_000_000}}
    return replace(trace, pair=trace.pair | sizes, environment={"watts_per_core": 4})


def test_a_token_costs_its_share_of_cpu_time_and_of_all_models_passes() -> None:
    trace = race(8, 2)
    fast, cost = trace.speculative, trace.costs[SPECULATIVE]
    assert fast is not None
    passes = len(fast.steps) + fast.drafted
    assert cost.cpu_s == pytest.approx(0.002 * passes / len(fast.tokens))
    read = 5e6 * len(fast.steps) + 1e6 * fast.drafted
    assert cost.weight_bytes == pytest.approx(read / len(fast.tokens))
    assert cost.joules == pytest.approx(4 * cost.cpu_s)
    assert cost.joules_by == "estimated at 4 W per core"
    assert trace.costs[AUTOREGRESSIVE].weight_bytes == 5e6
    measured = race(8, 2, joules=0.5).costs[AUTOREGRESSIVE]
    assert (measured.joules, measured.joules_by) == (0.5, RAPL)
    assert parse_trace(trace.to_json()).costs == trace.costs
    assert trace.to_dict()["costs"][SPECULATIVE]["cpu_s"] == cost.cpu_s


def test_more_cpu_time_is_said_beside_the_figures() -> None:
    costly, cheap = verdict(race(2, 8))["cost"], verdict(race(8, 2))["cost"]
    assert re.search(r"Speculation takes \d\.\d\d× the CPU time\.$", costly)
    assert re.fullmatch(
        r"Per token: 8\.0 → \d+\.\d ms of CPU time, 5 → \d+ MB of weights read \(computed\), "
        r"0\.032 → [\d.]+ J \(estimated at 4 W per core\)\.",
        cheap,
    )


def test_a_trace_without_costs_opens_and_shows_none() -> None:
    record = race(2, 8).to_dict()
    for lane in record["lanes"].values():
        for step in lane["steps"]:
            for name in ("cpu_s", "joules", "draft_passes"):
                del step[name]
    trace = parse_trace(json.dumps(record))
    assert trace.costs[SPECULATIVE] == Cost(None, None, None, None)
    assert verdict(trace)["cost"] == ""


def test_cpu_time_is_of_the_spans_and_not_of_other_python_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spun, used, done = threading.Event(), list[float](), threading.Event()

    def spin() -> None:
        while time.thread_time() < 0.02:
            pass
        used.append(time.thread_time())
        spun.set()
        done.wait()

    thread = threading.Thread(target=spin)
    thread.start()
    spun.wait()
    others = meters.other_threads()
    done.set()
    thread.join()
    assert others[thread.native_id or 0] >= used[0]
    assert threading.get_native_id() not in others

    process = iter([10.0, 11.0, 20.0, 20.5])  # two spans
    monkeypatch.setattr(meters, "process_time", lambda: next(process))
    threads = iter([{1: 5.0}, {1: 5.25}, {1: 9.0, 2: 1.0}, {2: 1.0, 3: 0.125}])
    monkeypatch.setattr(meters, "other_threads", lambda: next(threads))
    meter = Meter()
    for _ in range(2):
        meter.start()
        meter.stop()
    assert meter.take()["cpu_s"] == 0.75 + 0.375
    assert meter.take()["cpu_s"] == 0


@pytest.mark.parametrize("watts", ["much", "0", "-1", "nan", "inf"])
def test_watts_that_are_no_number_are_one_line(
    watts: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOLLY_WATTS_PER_CORE", watts)
    assert main(["Why?", "--pair", "nobody"]) == 2  # before anything is loaded
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"DOLLY_WATTS_PER_CORE: “{watts}” — set the watts")


def test_joules_are_of_all_packages_and_of_nothing_twice(tmp_path: Path) -> None:
    """A package's cores are part of it, and the platform has the packages in it."""
    zones = {"0": ("package-0", 100_000), "1": ("package-1", 900_000), "0:0": ("core", 0)}
    zones["2"] = ("psys", 0)

    def write(added: int) -> None:
        for zone, (name, energy) in zones.items():
            folder = tmp_path / f"intel-rapl:{zone}"
            folder.mkdir(exist_ok=True)
            now = (energy + added) % 1_000_000  # one of them starts anew
            for file, value in (("name", name), ("energy_uj", now), ("max_energy_range_uj", 10**6)):
                (folder / file).write_text(f"{value}\n")

    write(0)
    meter = Meter(tmp_path)
    meter.start()
    write(300_000)
    meter.stop()
    assert meter.take()["joules"] == pytest.approx(0.6)
    assert Meter(tmp_path / "absent").take()["joules"] is None

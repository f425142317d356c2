"""The arithmetic of `lab.studies.cost`: what a pass reads, what a token costs, what RAPL counts."""

from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest

from lab.studies.cost import EnergyMeter, Usage
from lab.weights import bytes_per_pass

ROWS, WIDTH = 10, 4
PASSES = {"target": 4, "draft": 16}
USAGE = Usage(tokens=10, seconds=0.5, cpu_seconds=0.9, passes=PASSES, joules=2.0)


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


def test_a_token_costs_its_share_of_all_models_passes() -> None:
    cost = USAGE.per_token({"target": 5_000_000, "draft": 1_000_000})
    assert cost == {
        "ms": pytest.approx(50),
        "cpu_ms": pytest.approx(90),
        "weights_mb": pytest.approx((4 * 5 + 16 * 1) / 10),
        "joules": pytest.approx(0.2),
    }


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
    meter = EnergyMeter(tmp_path)
    before = meter.read()
    write(300_000)
    assert meter.joules_since(before) == pytest.approx(0.6)
    absent = EnergyMeter(tmp_path / "absent")
    assert absent.joules_since(absent.read()) is None

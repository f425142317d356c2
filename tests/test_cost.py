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


def write_zone(root: Path, zone: str, name: str, energy: int) -> None:
    (root / zone).mkdir(parents=True, exist_ok=True)
    for file, value in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", 1_000_000)):
        (root / zone / file).write_text(f"{value}\n")


def test_joules_are_of_all_packages_and_of_nothing_twice(tmp_path: Path) -> None:
    """A package's cores are part of it, and the platform has the packages in it."""
    zones = ("package-0", 100_000), ("package-1", 900_000), ("core", 0), ("psys", 0)
    names = "intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl:2"
    for zone, (name, energy) in zip(names, zones, strict=True):
        write_zone(tmp_path, zone, name, energy)
    meter = EnergyMeter(tmp_path)
    before = meter.read()
    for zone, (name, energy) in zip(names, zones, strict=True):
        write_zone(tmp_path, zone, name, (energy + 300_000) % 1_000_000)  # one of them starts anew
    assert meter.joules_since(before) == pytest.approx(0.6)


def test_without_rapl_there_are_no_joules(tmp_path: Path) -> None:
    meter = EnergyMeter(tmp_path / "absent")
    assert meter.joules_since(meter.read()) is None

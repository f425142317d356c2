"""The time of a forward pass by its number of tokens; memory of a process."""

import pytest

from lab.footprint import Footprint
from lab.result import Result
from lab.studies import widths
from lab.studies.larger import STUDY as LARGER
from lab.studies.widths import STUDY, WIDTHS, Passes, measured, triads
from pipeline.runtime.ir import bytes_per_pass, read_model
from tests.tiny import tiny_folder


def passes(name="model"):
    """Of a model that reads 8 MB; a pass of n tokens takes 9 + n ms, one of 128 takes 64 ms."""
    seconds = {count: [(9 + count) / 1e3] * 3 for count in WIDTHS} | {128: [0.064] * 3}
    return Passes(name, 8_000_000, seconds)


def test_a_pass_is_compared_with_single_tokens_with_reading_and_with_computing():
    rows = [*passes().rows(bandwidth=2e9)]
    assert [row["tokens"] for row in rows] == [*WIDTHS]
    five = rows[4]
    assert five["ms"] == pytest.approx(14)
    assert five["relative"] == pytest.approx(1.4)
    assert five["separate"] == pytest.approx(50)
    assert five["memory"] == pytest.approx(4)
    assert five["of_memory"] == pytest.approx(4 / 14)
    assert five["compute"] == pytest.approx(5 * 0.5)
    assert five["of_compute"] == pytest.approx(2.5 / 14)
    said = STUDY.conclude(rows)
    assert "takes 1.40 times as long" in said
    assert "takes 40 % of the time of a single token" in said
    rows = [*passes("160M, int8").rows(2e9), *passes("3B, int8").rows(2e9)]
    assert "takes 1.40 (160M), 1.40 (3B) times as long" in LARGER.conclude(rows)


def test_the_passes_of_a_model_are_measured_and_what_they_read(monkeypatch):
    assert all(1e8 < rate < 1e13 for rate in triads(1, 2))
    monkeypatch.setattr(widths, "triads", lambda threads, repeats: iter([2e9] * repeats))
    folder = tiny_folder() / "target"
    results = [*measured([("tiny", folder)], 2, Result(pair={"name": "tiny"}))]
    last = results[-1]
    assert last.complete
    assert last.pair == {"name": "tiny"}
    assert [row["tokens"] for row in last.rows] == [*WIDTHS]
    assert all(row["ms"] > 0 for row in last.rows)
    read = last.rows[0]["memory"] / 1e3 * 2e9
    assert read > bytes_per_pass(read_model(folder))


def test_the_footprint_of_a_decoder_is_that_of_its_own_process():
    folder = tiny_folder()
    alone = Footprint(target=folder / "target", draft=None, prompt=[5, 9], max_new_tokens=4)
    held = b"x" * 400_000_000  # of this process, which does not count
    peak = alone.peak_bytes()
    assert 3e7 < peak < len(held)

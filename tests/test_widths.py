"""The time of a forward pass by its number of tokens; memory of a process."""

import pytest

from lab.footprint import peak_bytes
from lab.result import Result
from lab.studies import widths
from lab.studies.widths import WIDTHS, measured, rows_of, triads
from pipeline.runtime.ir import bytes_per_pass, read_model
from tests.tiny import tiny_folder


def test_a_pass_is_compared_with_single_tokens_with_reading_and_with_computing():
    """Of a model that reads 8 MB; a pass of n tokens takes 9 + n ms, one of 128 takes 64 ms."""
    seconds = {count: [(9 + count) / 1e3] * 3 for count in WIDTHS} | {128: [0.064] * 3}
    rows = [*rows_of("model", 8_000_000, seconds, bandwidth=2e9)]
    assert [row["tokens"] for row in rows] == [*WIDTHS]
    five = rows[4]
    assert five["ms"] == pytest.approx(14)
    assert five["relative"] == pytest.approx(1.4)
    assert five["separate"] == pytest.approx(50)
    assert five["memory"] == pytest.approx(4)
    assert five["of_memory"] == pytest.approx(4 / 14)
    assert five["compute"] == pytest.approx(5 * 0.5)
    assert five["of_compute"] == pytest.approx(2.5 / 14)


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
    held = b"x" * 400_000_000  # of this process, which does not count
    peak = peak_bytes(folder / "target", None, [5, 9], 4)
    assert 3e7 < peak < len(held)

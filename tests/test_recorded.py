"""Traces of runs that are not live: the recorded one, and a visitor's files."""

import pytest

from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from ui.run.recorded import badge, read_trace, recorded


def test_the_recorded_run_is_a_whole_race_of_the_embedded_pair_with_every_kind_of_token():
    trace = recorded()
    assert trace.pair["name"] == DEFAULT_PAIR
    assert trace.finished
    assert trace.identical
    origins = {token.origin for token in trace.speculative.tokens}
    assert origins == {"accepted", "resampled", "bonus"}
    assert 30 <= len(trace.speculative.tokens) <= 100
    assert trace.environment["cpu"] in badge("Recorded", trace)
    named = {
        token for step in trace.speculative.steps for top in step.draft_top for token, _ in top
    }
    assert named <= trace.pieces.keys()


def test_a_file_that_is_too_large_or_no_text_gets_its_one_line(tmp_path):
    file = tmp_path / "trace.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"^trace file: .*UTF-8"):
        read_trace(file)
    file.write_bytes(b" " * (5 * 2**20))
    with pytest.raises(UserError, match=r"^trace file: “5 MB” — choose one of at most 4 MB"):
        read_trace(file)

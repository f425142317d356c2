"""Traces of runs that are not live: the recorded one, and a visitor's files."""

import json
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.trace.reader import parse_trace
from tests.traces import ran
from ui.run.race import replayed
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


@cache
def good():
    return ran(max_new_tokens=12).to_json()


@settings(max_examples=60)
@given(st.data())
def test_whatever_times_a_trace_has_it_is_refused_or_shown(data):
    """Among them those of mutants: no time at all, almost none, and very long ones."""
    times = st.sampled_from([0.0, 1e-300, 1e-9, 1e-6, 0.01, 1e3])
    record = json.loads(good())
    usual = data.draw(times)
    for lane in record["lanes"].values():
        lane["prefill_s"] = clock = data.draw(times)
        for step in lane["steps"]:
            step |= dict.fromkeys(("draft_s", "verify_s", "other_s"), usual)
            step["verify_s"] = data.draw(st.just(usual) | times)
            clock += step["draft_s"] + step["verify_s"] + step["other_s"]
            step["time_s"] = clock
            for token in lane["tokens"]:
                if token["step"] == step["index"]:
                    token["time_s"] = clock
    try:
        trace = parse_trace(json.dumps(record))
    except UserError:
        return
    shown = replayed(trace, "Loaded")
    values = [shown.lines, json.dumps(shown.verdict), *shown.views.values()]
    for word in ("NaN", "Infinity", "inf"):
        assert not any(re.search(rf"\b{word}\b", value) for value in values)


def test_a_file_that_is_too_large_or_no_text_gets_its_one_line(tmp_path):
    file = tmp_path / "trace.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"^trace file: .*UTF-8"):
        read_trace(file)
    file.write_bytes(b" " * (13 * 2**20))
    with pytest.raises(UserError, match=r"^trace file: “13 MB” — choose one of at most 12 MB"):
        read_trace(file)

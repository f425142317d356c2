"""Reading a trace: what was written comes back, and what is no trace is refused in one line."""

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.load.mutants import changed, paths
from pipeline.errors import UserError
from pipeline.trace.reader import parse_trace
from pipeline.trace.record import Trace
from tests.traces import STRANGE, old, ran


@cache
def good() -> str:
    return ran(max_new_tokens=20).to_json()


def refusal(text: str) -> str:
    """The one line that says why it is refused."""
    with pytest.raises(UserError) as error:
        parse_trace(text)
    line = str(error.value)
    assert "\n" not in line
    assert len(line) < 300
    return line


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_trace_is_read_as_it_was_written_strange_texts_included(temperature):
    trace = ran(STRANGE, temperature=temperature)
    assert parse_trace(trace.to_json()) == trace


def test_an_old_trace_has_its_lanes_and_none_for_what_it_did_not_record():
    trace = ran(max_new_tokens=20)
    before = parse_trace(json.dumps(old(trace)))
    assert before.speculative.tokens == trace.speculative.tokens
    assert before.speculative.accepted == trace.speculative.accepted
    assert before.pieces == {}


def test_fields_that_are_not_known_are_ignored():
    record = json.loads(good())
    for place in (record, record["pair"], record["request"], record["lanes"]["speculative"]):
        place["added later"] = [{}]
    record["lanes"]["speculative"]["steps"][0]["added later"] = "x"
    assert parse_trace(json.dumps(record)) == parse_trace(good())


LANE = ("lanes", "speculative")
STEP = (*LANE, "steps", 1)
TOKEN = (*LANE, "tokens", 0)
BAD_TRACES = [  # what is changed in a good one, how its one line begins
    (("schema",), {"a": 1}, "trace schema: “dict” — it must be 'trace@1'"),
    (("schema",), "trace@2", "trace schema: “trace@2” — it must be 'trace@1'"),
    (("created",), "../../etc", "trace created: “../../etc” —"),
    (("created",), 5, "trace created: 5 — it must be a valid string"),
    (("environment",), [], "trace environment: “list” — it must be an object"),
    (("environment",), {"cpu\n": [5]}, "trace environment: “list” — it must have"),
    (("environment",), {"a": float("inf")}, "trace environment: inf — it must have values"),
    (("environment",), {"watts_per_core": 10**400}, "trace environment: 1"),
    (("pair",), {}, "trace pair.name: “nothing” — it must be there"),
    (("pair", "target"), "big", "trace pair.target: “big” — it must be an object"),
    (("request", "temperature"), "hot", "temperature: “hot” —"),
    (("request", "max_new_tokens"), 10**400, "new tokens: 1000000"),
    (("request", "instruction"), KeyError, "trace request.instruction: “nothing” —"),
    (("request", "instruction"), 5, "instruction: 5 —"),
    (("prompt_tokens",), [1, -1], "trace prompt_tokens[1]: -1 — it must be greater than"),
    (("lanes",), {}, "trace lanes: “dict” —"),
    (("lanes",), {"third": {}}, "trace lanes: “dict” —"),
    (("lanes", "autoregressive"), None, "trace lanes.autoregressive: None — it must be an object"),
    ((*LANE, "text"), "other", "trace lanes.speculative.text: “other” —"),
    ((*LANE, "finish"), "boom", "trace lanes.speculative.finish: “boom” — it must be 'stop', "),
    ((*LANE, "prefill_s"), 1e7, "trace lanes.speculative.prefill_s: 10000000.0 —"),
    ((*TOKEN, "text"), "\ud800", "trace: “Invalid JSON: "),
    ((*TOKEN, "origin"), "luck", "trace lanes.speculative.tokens[0].origin: “luck”"),
    ((*TOKEN, "origin"), "bonus", "trace lanes.speculative.steps[0]'s tokens: “bonus, "),
    ((*TOKEN, "id"), -1, "trace lanes.speculative.tokens[0].id: -1 —"),
    ((*TOKEN, "id"), True, "trace lanes.speculative.tokens[0].id: True —"),
    ((*TOKEN, "id"), 10**400, "trace lanes.speculative.tokens[0].id: 100000"),
    ((*TOKEN, "step"), 1.0, "trace lanes.speculative.tokens[0].step: 1.0 —"),
    ((*TOKEN, "time_s"), 1e300, "trace lanes.speculative.steps[0]'s tokens: 1e+300 —"),
    ((*LANE, "tokens"), [], "trace lanes.speculative.text: "),
    ((*LANE, "tokens"), [0] * 1_000_000, "trace lanes.speculative.tokens[0]: 0 —"),
    ((*STEP, "accepted"), 99, "trace lanes.speculative.steps[1].accepted: 99 —"),
    ((*STEP, "index"), 7, "trace lanes.speculative.steps[1].index: 7 —"),
    ((*STEP, "drafted"), [0] * 100_000, "trace lanes.speculative.steps[1].drafted: 100000 —"),
    ((*STEP, "target_prob"), [], "trace lanes.speculative.steps[1].target_prob: 0 — it must be "),
    ((*STEP, "uniform"), [], "trace lanes.speculative.steps[1].uniform: 0 —"),
    ((*STEP, "verify_s"), float("nan"), "trace lanes.speculative.steps[1].verify_s: nan —"),
    ((*STEP, "verify_s"), -0.5, "trace lanes.speculative.steps[1].verify_s: -0.5 —"),
    ((*STEP, "verify_s"), 1e300, "trace lanes.speculative.steps[1].time_s: "),
    ((*STEP, "verify_s"), "0.5", "trace lanes.speculative.steps[1].verify_s: “0.5” —"),
    ((*STEP, "time_s"), 0.0, "trace lanes.speculative.steps[1].time_s: 0.0 —"),
    ((*STEP, "target_top"), [[[1]]], "trace lanes.speculative.steps[1].target_top[0][0][1]: “"),
    (
        (*STEP, "target_top"),
        [[[1, 0.5, 2]]],
        "trace lanes.speculative.steps[1].target_top[0][0]: “list” — it must have at most 2",
    ),
    ((*STEP, "draft_top"), [[[1, 0.5]] * 6] * 4, "trace lanes.speculative.steps[1].draft_top: 6 "),
    (("pieces",), {"__proto__": "x"}, "trace pieces: “__proto__” — it must be a token id"),
    (("pieces",), {"²": "x"}, "trace pieces: “²” —"),
    (("pieces",), {"5": None}, "trace pieces.5: None — it must be text"),
]


@pytest.mark.parametrize(("path", "value", "line"), BAD_TRACES, ids=range(len(BAD_TRACES)))
def test_a_bad_trace_is_refused_in_one_line(path, value, line):
    record = json.loads(good())
    changed(record, path, value)
    assert refusal(json.dumps(record)).startswith(line)


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-12])
def test_a_trace_whose_steps_took_no_time_is_refused(scale):
    """Its rates would be infinite; and no clock measures so little."""
    record = json.loads(good())
    for lane in record["lanes"].values():
        lane["prefill_s"] *= scale
        for token in lane["tokens"]:
            token["time_s"] *= scale
        for step in lane["steps"]:
            for name in ("draft_s", "verify_s", "other_s", "time_s"):
                step[name] *= scale
    line = refusal(json.dumps(record))
    assert line.startswith("trace lanes.autoregressive.steps[0].verify_s: ")


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "{}", "\0", "{" * 9, "[" * 100_000, "1" * 5_000, '{"a":' * 150),
        *('"\\ud800"', '"\ud800"', '{"schema": "trace@1"}'),
    ],
)
def test_what_is_no_trace_at_all_is_refused_in_one_line(text):
    line = refusal(text)
    assert line.startswith("trace")
    assert line.endswith("choose a file that holds a trace@1.")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.data())
def test_whatever_is_changed_in_a_trace_it_is_refused_in_one_line_or_a_trace_that_can_be_written(
    data,
):
    record = json.loads(good())
    path = data.draw(st.sampled_from(sorted(paths(record), key=repr)))
    changed(record, path, data.draw(ANY_JSON))
    try:
        trace = parse_trace(json.dumps(record))
    except UserError:
        refusal(json.dumps(record))
        return
    json.dumps(trace.to_dict(), allow_nan=False).encode()
    assert isinstance(trace, Trace)
    assert all(value is None or value >= 0 for value in figures(trace))


def figures(trace):
    yield trace.speedup
    for lane in trace.lanes.values():
        yield from (lane.tokens_per_second, lane.acceptance_rate, lane.block_efficiency)
        yield lane.drafted_yield

"""The lines of a run: the same, whether it is live or a trace."""

import json

import pytest

from pipeline.decoding.events import Drafted
from pipeline.request import Request
from pipeline.trace.metrics import progress
from pipeline.trace.repetition import body, repeats
from tests.fake_dolly import FakeDolly
from tests.served import LANES, PLAIN
from tests.traces import ran
from ui.run.transcript import Transcript


def parsed(text):
    return [json.loads(line) for line in text.splitlines()]


def grown(live):
    """The transcript of a run, update by update, and its tail after each."""
    growing = Transcript("id", live.trace())
    tails = [growing.tail]
    for update in live:
        growing.add(live.trace(), [update])
        tails.append(growing.tail)
    return growing, tails


def whole(trace):
    transcript = Transcript("id", trace)
    transcript.end(trace)
    return transcript


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_live_run_and_its_trace_are_the_same_lines(temperature):
    live = FakeDolly(PLAIN).start(Request("Say something", temperature=temperature))
    growing, _ = grown(live)
    growing.end(live.trace())
    replayed = whole(live.trace())

    def lane(lines, name):  # drafted lines come between, and tell pieces where first needed
        kinds = ("step", "end")
        return [
            {key: value for key, value in line.items() if key not in ("pieces", "number")}
            for line in parsed(lines)
            if line.get("lane") == name and line["kind"] in kinds
        ]

    def pieces(lines):
        return sorted(piece for line in parsed(lines) for piece in line.get("pieces", ()))

    assert pieces(growing.text) == pieces(replayed.text)
    for name in LANES:
        assert lane(growing.text, name) == lane(replayed.text, name)
    drafted = [line for line in parsed(growing.text) if line["kind"] == "drafted"]
    assert len(drafted) == sum(bool(step.drafted) for step in live.trace().speculative.steps)


def test_the_tails_of_a_run_hold_every_line_also_if_a_few_are_missed():
    live = FakeDolly(PLAIN).start(Request("Say something"))
    growing, tails = grown(live)
    seen = {line["number"]: line for tail in tails[::5] for line in parsed(tail)}
    seen |= {line["number"]: line for line in parsed(tails[-1])}
    assert [seen[number] for number in range(len(seen))] == parsed(growing.text)
    assert max(len(parsed(tail)) for tail in tails) < 20


def test_drafts_that_are_decided_already_are_not_drawn_as_pending():
    live = FakeDolly(PLAIN).start(Request("Say something", max_new_tokens=9))
    transcript = Transcript("id", live.trace())
    updates = list(live)
    assert any(isinstance(update.event, Drafted) for update in updates)
    transcript.add(live.trace(), updates)
    assert all(line["kind"] != "drafted" for line in parsed(transcript.text))


def test_a_step_s_line_has_the_record_s_figures_at_its_end():
    trace = ran(temperature=1.0)
    transcript = whole(trace)
    for name, lane in trace.lanes.items():
        *lines, end = [line for line in parsed(transcript.text) if line.get("lane") == name]
        assert end["tokens_per_second"] == lane.tokens_per_second
        assert end["repeats"] == repeats(body(lane), lane.text)
        _, *points = progress(lane)
        for line, point, step in zip(lines, points, lane.steps, strict=True):
            assert line["made"] == point.tokens
            assert line["tokens_per_second"] == point.tokens_per_second
            assert line["drafted_at_s"] == step.drafted_at_s


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("drafter", "copies"), [("model", False), ("block", False), ("lookup", True)]
)
def test_a_copy_is_known_as_one_before_and_after_it_is_verified(drafter, copies, temperature):
    request = Request("Say something", drafter=drafter, temperature=temperature)
    live = FakeDolly(PLAIN).start(request)
    growing, _ = grown(live)
    lines = [line for line in parsed(growing.text) if line.get("drafted")]
    assert {line["kind"] for line in lines} == {"drafted", "step"}
    assert {"by copying" in line["drafting"] for line in lines} == {copies}
    assert {line["drafting"] for line in parsed(growing.text) if line.get("drafted") == []} == {""}

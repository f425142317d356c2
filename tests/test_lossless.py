"""The check of greedy texts: every way to draft is counted, and a text that differs is found."""

from __future__ import annotations

from dataclasses import replace

from lab.studies.lossless import Way, races
from pipeline.decoding.decoders import Speculative
from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.events import Step
from pipeline.request import Request
from tests.tiny import tiny

REQUESTS = [Request(text, max_new_tokens=12) for text in ("one two", "three four", "one two")]


def test_texts_of_every_drafter_are_compared_with_the_autoregressive_ones():
    ways = [Way(drafter, length) for drafter in DRAFTERS for length in (4, "auto")]
    assert [*races(tiny(), REQUESTS, ways)] == [True] * 3
    assert [(way.races, way.mismatches) for way in ways] == [(3, {})] * len(ways)
    assert len({way.tokens for way in ways}) == 1  # they were compared with the same texts


def test_a_text_that_differs_is_found_with_its_place(monkeypatch):
    generate = Speculative.generate

    def wrong(*arguments):
        for event in generate(*arguments):
            first, *others = event.tokens if isinstance(event, Step) else [None]
            yield event if first is None else replace(event, tokens=(first ^ 1, *others))

    monkeypatch.setattr(Speculative, "generate", wrong)
    way = Way("model", 4)
    assert [*races(tiny(), REQUESTS[:1], [way])] == [True]
    place, gap = way.mismatches[REQUESTS[0].instruction]
    assert place == 0
    assert gap > 0


def test_a_prompt_that_does_not_fit_is_left_out():
    way = Way("model", 4)
    long = replace(REQUESTS[0], context="word " * 5_000)
    assert [*races(tiny(), [long, REQUESTS[0]], [way])] == [False, True]
    assert way.races == 1

"""Stop texts: they end the text exactly where they begin, in both lanes and however it is cut."""

from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters import DrafterSetup, find_drafter
from pipeline.decoding.events import Finish, FinishReason, Step
from pipeline.decoding.sampling import SamplingParams
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.text.stop import StopFilter, stop_matcher
from pipeline.text.tokenizer import Detokenizer
from pipeline.trace.recording import LaneRecording
from tests.fakes import FakeLM, tokens_of

PROMPT = [1, 2]
VOCAB = 7
LETTERS = "abé"
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=4)
# Of each token; a part of them are parts of a character, or no characters at all.
PIECES = st.lists(
    st.one_of(
        st.text(LETTERS, max_size=4).map(str.encode),
        st.sampled_from([b"\xc3", b"\xa9", b"\xa9a", b"b\xc3", b"\xff"]),
    ),
    min_size=VOCAB,
    max_size=VOCAB,
)


def cut(text, stops):
    """The text before the first stop text that is complete, and whether there is one."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))], True
    return text, False


@given(parts=st.lists(st.text(LETTERS, max_size=6), max_size=10), stops=STOPS)
@example(parts=["aa", "b"], stops=["ab"])
@example(parts=["ab", "a", "b"], stops=["abab", "b"])
def test_the_text_ends_before_the_first_stop_text_however_it_is_cut(parts, stops):
    stream, emitted, whole = StopFilter(stops), "", "".join(parts)
    for count, part in enumerate(parts, 1):
        emitted += stream.push(part)
        so_far, found = cut("".join(parts[:count]), stops)
        assert stream.found == found
        assert so_far.startswith(emitted)  # never a character of a stop text
        held = so_far[len(emitted) :]
        assert found <= (not held)  # and nothing is withheld that begins none
        assert not held or any(stop.startswith(held) for stop in stops)
    assert (emitted + stream.rest(), stream.found) == cut(whole, stops)


def test_without_stop_texts_nothing_is_withheld_and_nothing_matched():
    stream = StopFilter(())
    assert (stream.push("any"), stream.rest(), stream.found) == ("any", "", False)
    assert stop_matcher((), lambda: Detokenizer([], frozenset())) is None


def decoder(name, seed, k, end_ids, matcher=None):
    """A decoder, and its models."""
    target = FakeLM(VOCAB, seed)
    if name == "autoregressive":
        return Autoregressive(target, end_ids, matcher=matcher), (target,)
    draft = FakeLM(VOCAB, seed + 1, like=target, likeness=0.9)
    parts = DrafterSetup(VOCAB, end_ids, lambda: draft, None, AnswerMemory(), lambda: None)
    drafter = find_drafter(name).build(parts)
    decoder = Speculative(target, drafter, partial(Fixed, k), end_ids, matcher=matcher)
    return decoder, (target, draft)


@settings(max_examples=300)
@given(
    name=st.sampled_from(["autoregressive", "model", "lookup"]),
    seed=st.integers(0, 10**6),
    k=st.integers(1, 8),
    budget=st.integers(1, 40),
    temperature=st.sampled_from([0.0, 0.8]),
    pieces=PIECES,
    stops=STOPS,
    ends=st.frozensets(st.integers(0, VOCAB - 1), max_size=1),
)
def test_a_lane_is_the_one_without_stop_texts_cut_before_the_first(
    name, seed, k, budget, temperature, pieces, stops, ends
):
    params = SamplingParams(temperature, seed=seed)
    new_text = partial(Detokenizer, pieces, ends)

    free, _ = decoder(name, seed, k, ends)
    events = [*free.generate(PROMPT, params, budget)]
    free_tokens = tokens_of(events)
    stream = new_text()
    text, found = cut("".join(map(stream.push, free_tokens)), stops)

    stopping, models = decoder(name, seed, k, ends, stop_matcher(stops, new_text))
    recording = LaneRecording(name, new_text(), str, stops)
    streamed, last = "", None
    for event in stopping.generate(PROMPT, params, budget):
        update = recording.record(event)
        streamed += "".join(token.text for token in update.tokens) + update.rest
        last = event if isinstance(event, Step) else last
    lane = recording.lane()
    assert lane.text == "".join(token.text for token in lane.tokens) == streamed == text
    made = [token.id for token in lane.tokens]
    assert made == free_tokens[: len(made)]
    assert found or made == free_tokens
    reason = FinishReason.STOP if found else events[-1].reason
    assert event == Finish(reason)
    assert last.target_kv_len == len(PROMPT) + len(made) - 1  # rolled back to the emitted tokens
    assert last.draft_kv_len <= last.target_kv_len or name == "lookup"
    assert not any(map(len, models))


@pytest.mark.parametrize("stop", [("",), ("x" * 201,), (1,), ("a",) * 5, None, {"a": 1}])
def test_stop_texts_that_cannot_be_are_named(stop):
    with pytest.raises(UserError, match=r"^stop: .* — choose "):
        Request("Why?", stop=stop)

"""The memory of earlier texts: what is found in it, and what is forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Auto, Fixed
from pipeline.decoding.drafters.lookup import LookupDrafter
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import Origin, Step
from pipeline.decoding.sampling import SamplingParams, probabilities
from tests.chi_square import assert_follows
from tests.fakes import FakeLM

GREEDY = SamplingParams()
PROMPT = list(range(20))


def memory_of(*texts, **limit):
    memory = AnswerMemory(**limit)
    for text in texts:
        memory.add(text)
    return memory


def follows(memory, text, count=4):
    return memory.find(text).following(count)


def test_what_followed_in_an_earlier_text_is_found():
    assert follows(memory_of([*PROMPT, 50, 51, 52]), PROMPT) == (50, 51, 52)
    assert follows(memory_of([*PROMPT, 50, 51, 52]), [*PROMPT, 50, 51], 9) == (52,)


def test_a_few_tokens_alike_are_not_found():
    """All prompts end alike."""
    assert follows(memory_of([*PROMPT, 50, 51]), [99, *PROMPT[-7:]]) == ()
    assert follows(memory_of([*PROMPT, 50, 51]), [99, *PROMPT[-8:]]) == (50, 51)


def test_a_longer_likeness_comes_before_a_later_one():
    older, newer = [*PROMPT, 50], [99, *PROMPT[-10:], 51]
    assert follows(memory_of(older, newer), PROMPT) == (50,)
    assert follows(memory_of(older, newer), [98, *PROMPT[-10:]]) == (51,)


def test_no_likeness_stands_in_two_texts():
    assert follows(memory_of(PROMPT[:10], PROMPT[10:]), PROMPT[2:18]) == (18, 19)
    assert follows(memory_of(PROMPT[:10], PROMPT[10:]), PROMPT[:14]) == ()


@given(
    texts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), max_size=12),
    limit=st.integers(12, 40),
)
def test_the_oldest_texts_are_forgotten(texts, limit):
    """As many of the latest are kept as fit; one that comes again is the latest again."""
    memory = memory_of(*texts, limit=limit)
    latest = list(dict.fromkeys(tuple(text) for text in reversed(texts)))
    kept = 0
    for text in latest:
        if kept + len(text) > limit:
            break
        kept += len(text)
    assert len(memory) == kept


def ask(target, memory, params=GREEDY, length=None, budget=60):
    lookup = LookupDrafter(frozenset(), memory)
    decoder = Speculative(target, lookup, length or (lambda: Fixed(8)), frozenset())
    events = decoder.generate(PROMPT, params, budget)
    return [event for event in events if isinstance(event, Step)]


def emitted(steps):
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize("auto", [False, True])
def test_a_question_asked_again_is_answered_from_memory(auto):
    target, memory = FakeLM(50, 3, sharpness=4.0), AnswerMemory()
    costs = Costs(0.2, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8), switch=0.5)
    length = (lambda: Auto(AcceptanceStats(costs))) if auto else None
    slow = emitted(
        event
        for event in Autoregressive(target, frozenset()).generate(PROMPT, GREEDY, 60)
        if isinstance(event, Step)
    )
    first = ask(target, memory, length=length)
    memory.add([*PROMPT, *emitted(first)])
    again = ask(target, memory, length=length)
    assert emitted(first) == emitted(again) == slow
    assert Origin.REMEMBERED not in {origin for step in first for origin in step.origins}
    assert len(again) <= 8
    assert {origin for step in again for origin in step.origins[:-1]} == {Origin.REMEMBERED}


def test_what_is_remembered_does_not_change_the_distribution():
    """The first token, by chi-square over 6,000 runs, with an unlikely one in the memory."""
    target, params = FakeLM(20, 5, sharpness=1.0), SamplingParams(1.0)
    chances = probabilities(target.next_logits(PROMPT)[None].astype("float32"), params)[0]
    unlikely = int(chances.argmin())
    counts = dict.fromkeys(range(20), 0)
    for seed in range(6000):
        memory = memory_of([*PROMPT, unlikely, 1, 2])
        counts[ask(target, memory, SamplingParams(1.0, seed=seed), budget=2)[0].tokens[0]] += 1
    assert_follows(counts, dict(enumerate(map(float, chances))))

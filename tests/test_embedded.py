"""The pair that is shipped keeps what is promised of it."""

import pytest

from pipeline.decoding.drafters import DRAFTERS
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED, PAIRS
from pipeline.request import Request
from tests.embedded import embedded

INSTRUCTIONS = (
    "Name a book about the sea.",
    "Why do people like music?",
    "Which of these are fruits: apple, carrot, pear?",
)
PASSAGE = "The river Ouse is 129 miles long and flows through York."
TOKENS = 20  # of an answer
LARGEST = 95_000_000  # bytes of a file that every Git host takes


def answer(instruction, mode="race", **settings):
    request = Request(instruction, max_new_tokens=TOKENS, **settings)
    return embedded().start(request, mode).finish()


def ids(lane):
    return [token.id for token in lane.tokens]


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_greedy_text_is_the_same_at_every_draft_length(instruction):
    slow = answer(instruction, "autoregressive").autoregressive
    for k in (1, 4, 8, "auto"):
        fast = answer(instruction, "speculative", draft_length=k).speculative
        assert ids(fast) == ids(slow)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_text_is_the_same_with_every_drafter(drafter):
    assert answer("How long is the river?", context=PASSAGE, drafter=drafter).identical


def test_that_they_do_is_checked_when_the_pair_is_loaded():
    assert embedded().about["exact_widths"] is True


def test_drafts_are_accepted_and_an_answer_is_text():
    traces = [answer(instruction) for instruction in (*INSTRUCTIONS, "Who wrote Hamlet?")]
    assert sum(trace.speculative.accepted for trace in traces)
    assert all(trace.autoregressive.text.strip() for trace in traces)
    assert "Shakespeare" in traces[-1].autoregressive.text


def test_an_answer_ends_by_itself():
    request = Request(PAIRS[DEFAULT_PAIR].examples[0].instruction, max_new_tokens=256)
    assert embedded().start(request, "speculative").finish().speculative.finish == "stop"


@pytest.mark.parametrize("role", ["target", "draft"])
def test_its_sizes_are_those_that_the_registry_names(role):
    told = getattr(PAIRS[DEFAULT_PAIR], role)
    about = embedded().about[role]
    assert about["parameters"] == pytest.approx(told.parameters, rel=0.01)
    assert about["bytes"] == pytest.approx(told.memory_bytes, rel=0.3)


def test_each_of_its_files_is_small_enough_for_any_git_host():
    files = [file for file in EMBEDDED.rglob("*") if file.is_file()]
    sizes = {file.name: file.stat().st_size for file in files}
    assert max(sizes.values()) <= LARGEST

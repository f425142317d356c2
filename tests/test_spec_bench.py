"""Spec-Bench: which questions are asked, and what the engines' times come to."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engines.engines import CONTEXT, OURS, OURS_FASTEST
from lab.prompts import evenly
from lab.studies import peers
from lab.studies.peers import Running, Timed, timed
from lab.studies.spec_bench import fitting, questions, rows_of
from pipeline.errors import UserError
from tests.archives import write


def test_questions_are_of_six_tasks_and_a_conversation_is_its_first_turn(tmp_path):
    others = ("translation", "summarization", "qa", "math_reasoning", "rag")
    rows = [{"category": c, "turns": [f"{c}?", "then?"]} for c in ("writing", "coding", *others)]
    write(file := tmp_path / "spec_bench.jsonl.xz", rows)
    assert questions(tmp_path) == {
        "conversation": ["writing?", "coding?"],
        "translation": ["translation?"],
        "summarisation": ["summarization?"],
        "question answering": ["qa?"],
        "mathematical reasoning": ["math_reasoning?"],
        "retrieval-augmented": ["rag?"],
    }
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match="truncated or damaged"):
        questions(tmp_path)
    with pytest.raises(UserError, match="is not there"):
        questions(tmp_path / "nowhere")


def test_a_question_is_left_out_if_no_room_is_left_for_its_answer():
    short, long = ("Why?", ""), ("word " * (CONTEXT - 100), "")
    assert fitting({"qa": [short, long], "rag": [long]}, 40) == {"qa": [short, long], "rag": [long]}
    assert fitting({"qa": [short, long], "rag": [long]}, 100) == {"qa": [short], "rag": []}


@given(size=st.integers(1, 90), count=st.integers(1, 20))
def test_questions_are_taken_evenly(size, count):
    taken = evenly([str(number) for number in range(size)], count)
    places = [int(text) for text in taken]
    assert len(places) == min(size, count)
    assert places[0] == 0
    gaps = [later - earlier for earlier, later in pairwise(places)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def engine(name, ms, tokens=(1, 2, 3, 4, 5), passes=4):
    """One that reports a token first, and takes so many milliseconds for each later one."""
    times = [(1, 1.0), *((2 + at, 1.0) for at in range(passes))]
    answer = Timed([*tokens], times, 1.0 + 4 * ms / 1e3)
    return Running(name, samples={(kind, 0, 5): [answer] for kind in ("qa", "rag")})


def test_a_speedup_is_over_the_same_engine_and_over_the_fastest():
    engines = [
        engine(OURS, 10.0),
        engine(f"{OURS}, hybrid", 5.0, passes=1),
        engine("OpenVINO GenAI", 8.0, tokens=(1, 2, 3, 4, 6)),
        engine("OpenVINO GenAI, speculative", 16.0),
        engine("notebook 2024", 4.0),
        Running("llama.cpp", failed="no such file"),
    ]
    ours, hybrid, genai, slower, notebook, failed = rows_of(engines)
    assert notebook["own"] is None  # it has no autoregressive mode
    assert notebook["all"] == pytest.approx(2.0)
    assert hybrid["own"] == pytest.approx(2.0)
    assert [hybrid[name] for name in ("qa", "rag", "all")] == pytest.approx([1.6] * 3)
    assert slower["own"] == pytest.approx(0.5)
    assert [row["same"] for row in (ours, hybrid, genai, slower)] == [1.0, 1.0, 0.0, 1.0]
    assert [ours["block"], hybrid["block"], genai["block"]] == [1.0, 2.5, None]
    assert {name for name, cell in failed.items() if cell} == {"engine", "failed"}


def test_an_engine_is_compared_with_ours_prompt_by_prompt():
    engines = [engine(OURS, 10.0), engine(OURS_FASTEST, 8.0), engine("notebook 2024", 4.0)]
    ours, _, notebook = peers.rows_of("pair", engines)
    assert (ours["ms"], ours["same"]) == (pytest.approx(10), 1)
    assert (ours["over_fastest"], ours["over_speculative"]) == (pytest.approx(1.25), None)
    assert notebook["block"] == 1  # five reports of a token each
    assert ours["block"] is None
    assert notebook["first_ms"] == 1000


def test_an_answer_is_timed_as_it_is_reported():
    def answer(prompt, count, on_tokens):
        on_tokens(2)
        return [7] * count

    found = timed(answer, [1], 4)
    assert found.tokens == [7] * 4
    assert [made for made, _ in found.times] == [2]
    assert 0 <= found.times[0][1] <= found.seconds

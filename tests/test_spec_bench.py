"""Spec-Bench: which questions are asked, and what the engines' times come to."""

import json
import lzma
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engines.engines import CONTEXT, OURS
from lab.prompts import evenly
from lab.studies.peers import Engine
from lab.studies.spec_bench import fitting, questions, summed_up
from pipeline.errors import UserError


def test_questions_are_of_six_tasks_and_a_conversation_is_its_first_turn(tmp_path):
    categories = [
        "writing",
        "coding",
        "translation",
        "summarization",
        "qa",
        "math_reasoning",
        "rag",
    ]
    lines = [json.dumps({"category": c, "turns": [f"{c}?", "then?"]}) for c in categories]
    file = tmp_path / "spec_bench.jsonl.xz"
    file.write_bytes(lzma.compress("\n".join(lines).encode()))
    assert questions(tmp_path) == {
        "conversation": ["writing?", "coding?"],
        "translation": ["translation?"],
        "summarisation": ["summarization?"],
        "question answering": ["qa?"],
        "mathematical reasoning": ["math_reasoning?"],
        "retrieval-augmented": ["rag?"],
    }
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match="is damaged"):
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
    taken = {"tokens": list(tokens), "times": times, "total": 1.0 + 4 * ms / 1e3}
    samples = [{"kind": kind, "prompt": 0, "count": 5, **taken} for kind in ("qa", "rag")]
    return Engine(name, None, samples=samples)


def test_a_speedup_is_over_the_same_engine_and_over_the_fastest():
    engines = [
        engine(OURS, 10.0),
        engine(f"{OURS}, hybrid", 5.0, passes=1),
        engine("OpenVINO GenAI", 8.0, tokens=(1, 2, 3, 4, 6)),
        engine("OpenVINO GenAI, speculative", 16.0),
        engine("notebook 2024", 4.0),
        Engine("llama.cpp", None, failed="no such file"),
    ]
    ours, hybrid, genai, slower, notebook, failed = summed_up(engines)
    assert notebook["over_own"] is None  # it has no autoregressive mode
    assert notebook["over_fastest"]["all"] == pytest.approx(2.0)
    assert hybrid["over_own"] == pytest.approx({"qa": 2.0, "rag": 2.0, "all": 2.0})
    assert hybrid["over_fastest"]["all"] == pytest.approx(1.6)
    assert slower["over_own"]["all"] == pytest.approx(0.5)
    assert [row["identical"] for row in (ours, hybrid, genai, slower)] == [1.0, 1.0, 0.0, 1.0]
    assert ours["mean_accepted_tokens"] == 1.0
    assert hybrid["mean_accepted_tokens"] == 2.5
    assert failed == {"engine": "llama.cpp", "failed": "no such file"}

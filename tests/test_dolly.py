"""A loaded pair: lossless greedy output, the target's distribution, traces, and bad input."""

import shutil
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from lab.studies.sampled import joint
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.decoders import Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters import DrafterSetup, find_drafter
from pipeline.decoding.economics import AcceptanceStats, Costs, Measurement
from pipeline.decoding.events import FinishReason
from pipeline.decoding.sampling import SamplingParams
from pipeline.dolly import Dolly
from pipeline.errors import LogitsError, UserError
from pipeline.models.pairs import DEFAULT_PAIR, find_pair
from pipeline.request import Request
from pipeline.runtime.block import OVBlockDraft
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.runtime.sequence import OVCausalLM
from pipeline.trace.reader import parse_trace
from pipeline.trace.record import Lane, Trace
from pipeline.trace.signatures import signatures
from tests.chi_square import assert_follows
from tests.fakes import tokens_of
from tests.lines import one_line
from tests.tiny import WIDTH, tiny, tiny_folder

SUBJECTS = ("a river", "bread", "the moon", "a good friend", "winter", "music", "a bicycle")
ASKED = (
    "What is {}?",
    "Why do people like {}?",
    "Give me three ideas about {}.",
    "Write a short story about {}.",
    "Name a book about {}.",
    "How would you describe {} to a child?",
    "Tell me something surprising about {}.",
    "Is {} useful?",
    "List five words that go with {}.",
)
LENGTHS = (1, 2, 4, 8)
TOKENS = 16  # of an answer
SLOW = [*product([name for name in POLICIES if name != DEFAULT_POLICY], LENGTHS)]
PROMPTS = [ask.format(subject) for ask in ASKED for subject in SUBJECTS]


def answer(**wanted) -> Trace:
    mode = wanted.pop("mode", "race")
    return tiny().start(Request(**wanted), mode).finish()


@cache
def autoregressive(**wanted) -> Lane:
    return answer(mode="autoregressive", **wanted).lanes["autoregressive"]


def ids(lane: Lane) -> list[int]:
    return [token.id for token in lane.tokens]


def assert_lossless(prompt: str, draft_length, drafter="model", **wanted) -> Lane:
    """The speculative lane, whose tokens are those of the autoregressive one."""
    wanted = {"instruction": prompt, "max_new_tokens": TOKENS, **wanted}
    fast = answer(mode="speculative", draft_length=draft_length, drafter=drafter, **wanted)
    lane = fast.lanes["speculative"]
    assert ids(lane) == ids(autoregressive(**wanted)), prompt
    return lane


@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize(("drafter", "prompts"), [("model", PROMPTS), ("block", PROMPTS[::3])])
def test_greedy_speculative_equals_autoregressive(drafter, prompts, k):
    assert len(PROMPTS) >= 60
    lanes = [assert_lossless(prompt, k, drafter) for prompt in prompts]
    accepted = sum(lane.accepted for lane in lanes)
    assert 0 < accepted < sum(lane.tested for lane in lanes)


@pytest.mark.parametrize(("kind", "k"), SLOW)
def test_greedy_speculative_equals_autoregressive_with_the_slower_caches(kind, k):
    """They share the prompts."""
    for prompt in PROMPTS[SLOW.index((kind, k)) :: len(SLOW)]:
        assert_lossless(prompt, kv_cache=kind, max_new_tokens=6, draft_length=k)


@pytest.fixture
def cheap_drafts(monkeypatch):
    """For draft lengths that go by measured costs: the tiny draft costs as much as its target."""
    known = Measurement(Costs(0.2, (1.0,) * 9), spread=0.0)
    monkeypatch.setattr(tiny().models(), "measured", known)
    monkeypatch.setattr(AcceptanceStats, "update_draft_cost", lambda *_: None)
    monkeypatch.setattr(tiny().models(), "stats", {})


@pytest.mark.usefixtures("cheap_drafts")
def test_what_typical_acceptance_accepts_is_no_estimate_of_what_exact_verification_does():
    stats = tiny().models().stats
    for verification in ("typical", "token"):
        answer(instruction=PROMPTS[0], draft_length="auto", verification=verification)
        own = stats[verification]["model"]
        assert all(own is not each["model"] for name, each in stats.items() if name != verification)


@pytest.mark.parametrize("drafter", ["model", "block"])
def test_the_first_tokens_follow_the_target(drafter):
    """Two positions, 600 seeds, where drafts are about as often accepted as rejected: the decoder's
    draws against the target's own probabilities.
    """
    vocab, models = tiny().tokenizer.size, tiny().models()
    target = models.target.sequence(vocab)
    prompt, params = tiny().tokenizer.encode("A bicycle is"), SamplingParams(1.5, top_k=6)
    expected = joint(target, prompt, params, frozenset())
    target.rollback(0)
    draft = partial(models.draft.sequence, vocab)
    block = partial(models.block_draft.block_draft, vocab)
    costs = Costs(0.2, (1.0,) * 9)
    parts = DrafterSetup(vocab, frozenset(), draft, block, AnswerMemory(), lambda: costs)
    made = find_drafter(drafter).build(parts)
    decoder = Speculative(target, made, partial(Fixed, 2), frozenset())
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(600):
        events = decoder.generate(prompt, replace(params, seed=seed), 3)
        counts[tuple(tokens_of(events)[:2])] += 1
    assert_follows(counts, expected)


def test_a_block_draft_is_given_the_target_s_states_of_every_token_but_the_newest(monkeypatch):
    """Those of a sequence that reads the whole text at once, the shared prefix included."""
    read: list[np.ndarray] = []
    forward = OVBlockDraft.forward

    def watched(self, tokens, hidden, length):
        read.append(hidden)
        return forward(self, tokens, hidden, length)

    monkeypatch.setattr(OVBlockDraft, "forward", watched)
    wanted = {"instruction": "Why is the sky blue?", "max_new_tokens": 16}
    trace = answer(drafter="block", **wanted)
    assert trace.identical
    assert trace.speculative.text == answer(**wanted).speculative.text
    text = [*trace.prompt_tokens, *ids(trace.speculative)]
    whole = tiny().models().target.sequence().forward(text[:-1], logits_to_keep=0).hidden
    got = np.concatenate(read)
    assert len(text) - 10 < len(got) <= len(whole)
    for mine, expected in zip(
        *(np.split(all, 2, 1) for all in (got, whole[: len(got)])), strict=True
    ):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=0.02 * np.ptp(expected))


def test_passes_of_different_sizes_that_differ_are_found(monkeypatch):
    """As on a machine whose kernels round otherwise for as many as nine tokens."""
    assert tiny().about["exact_widths"] is True
    target, forward = tiny().models().target, OVCausalLM.forward

    def rounding(self, tokens, logits_to_keep, *more):
        output = forward(self, tokens, logits_to_keep, *more)
        if len(tokens) == 9:
            output.logits[4] += 1e-6
        return output

    monkeypatch.setattr(OVCausalLM, "forward", rounding)
    assert not target.exact_widths(tiny().tokenizer.ask("Why is the sky blue?"))


@pytest.mark.parametrize("found", [True, False])
def test_a_trace_is_exact_where_the_machine_was_found_to_be(monkeypatch, found):
    """As with a quantised cache, whose policy forgets nothing and whose texts differ."""
    monkeypatch.setattr(tiny().models(), "exact_widths", found)
    trace = answer(instruction="Why?", max_new_tokens=3)
    assert (trace.pair["exact"], trace.forgets) == (found, False)
    assert trace.identical is not None  # what the run shows is said all the same
    assert parse_trace(trace.to_json()) == trace


@pytest.mark.parametrize("updates", [0, 1, 5])
def test_a_cancelled_run_keeps_what_it_made_and_the_next_one_works(updates):
    run = tiny().start(Request("Why?", max_new_tokens=50))
    for count, _ in enumerate(run, start=1):
        if count > updates:
            run.cancel()
    assert {lane.finish for lane in run.trace().lanes.values()} == {FinishReason.CANCELLED}
    assert answer(instruction="Why?", max_new_tokens=3).finished


def test_to_start_a_run_compiles_nothing_and_allocates_no_cache(monkeypatch):
    pair, request = Dolly(tiny_folder()), Request("Why?", max_new_tokens=2, draft_length="auto")
    asked = [replace(request, **each) for each in ({}, {"kv_cache": "stateful"})]
    pool = pair.models().target.pool

    def refuse(*_, **__):
        raise AssertionError("start has to compute nothing")

    with monkeypatch.context() as patched:
        patched.setattr(ov.Core, "compile_model", refuse)
        patched.setattr(ov.CompiledModel, "create_infer_request", refuse)
        runs = [pair.start(each) for each in asked]
    assert pair.models().target.pool == pool
    assert pair.measured is None
    for run, kv_cache in zip(runs, ("paged", "stateful"), strict=True):
        assert run.trace().pair == pair.about
        assert run.finish().pair["kv_cache"] == kv_cache


def test_a_prompt_too_long_for_the_context_is_refused_before_any_compute():
    with pytest.raises(UserError, match=r"^prompt tokens: \d+ — shorten it"):
        tiny().start(Request("word " * 2000))


def test_an_answer_ends_where_the_context_does():
    room = tiny().context_length
    words = "a " * 2000
    instruction = next(
        words[:length]
        for length in range(2000, 0, -2)
        if len(tiny().tokenizer.ask(words[:length])) < room - 3
    )
    trace = answer(instruction=instruction, max_new_tokens=50)
    used = len(trace.prompt_tokens) + len(trace.lanes["speculative"].tokens)
    assert used <= room
    assert trace.identical


def copied(tmp_path: Path) -> Path:
    for name in ("target", "draft"):
        shutil.copytree(tiny_folder() / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", ["nobody", "", "\0", "x" * 5000])
def test_an_unknown_pair_is_one_line_that_names_those_there_are(name):
    with pytest.raises(UserError, match=rf"^pair: .*{DEFAULT_PAIR}"):
        find_pair(name)


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    "file", ["openvino_model.xml", "openvino_model.bin", "config.json", "tokenizer.json"]
)
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_model_is_one_line(tmp_path, role, file, damage):
    folder = copied(tmp_path)
    break_file(folder / role / file, damage)
    with one_line("^model: "):
        Dolly(folder)


def test_weights_in_parts_are_those_of_one_file(tmp_path):
    """The same text, and a part that is missing or cut is one line."""
    from lab.training.export import split_weights  # loads PyTorch

    folder, request = copied(tmp_path), Request("Why?", max_new_tokens=9)
    whole = Dolly(folder).start(request).finish().autoregressive.text
    split_weights(folder / "target", 100_000)
    parts = sorted((folder / "target").glob("*.bin"))
    assert len(parts) > 2
    assert Dolly(folder).start(request).finish().autoregressive.text == whole
    shutil.copy(tiny_folder() / "target" / "openvino_model.bin", folder / "target")
    split_weights(folder / "target", 150_000)  # into fewer, as by another export
    parts = sorted((folder / "target").glob("*.bin"))
    assert Dolly(folder).start(request).finish().autoregressive.text == whole
    for damage in ("truncated", "missing"):
        break_file(parts[1], damage)
        with pytest.raises(UserError, match=r"^model: .*(add its|damaged)"):
            Dolly(folder)


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_weight_that_is_no_number_ends_a_run_with_one_line_that_names_the_model(
    tmp_path, role, temperature
):
    """All of it is real: the models load, and their logits are NaN."""
    folder = copied(tmp_path)
    spoil(folder / role)
    request = Request("Why?", max_new_tokens=9, temperature=temperature, drafter="model")
    run = Dolly(folder).start(request)
    with pytest.raises(LogitsError, match=f"^{role} logits: nan — ") as caught:
        run.finish()
    assert [each.name for each in signatures(run.trace(), failure=caught.value)] == ["logits"]


def spoil(folder: Path) -> None:
    """Makes the weights of the last normalisation NaN."""
    model = ov.Core().read_model(folder / "openvino_model.xml")
    constants = (op for op in model.get_ordered_ops() if op.get_type_name() == "Constant")
    norms = [op for op in constants if op.get_element_type().is_real() and op.data.size == WIDTH]
    weight = norms[-1]
    damaged = ov.op.Constant(np.full(weight.data.shape, np.nan, weight.data.dtype))
    weight.output(0).replace(damaged.output(0))
    for file in folder.glob("openvino_model.*"):
        file.unlink()  # not written over: OpenVINO may still map it
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)


def break_file(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(whole[: len(whole) // 2])


def test_the_precision_of_the_caches_is_the_requests():
    trace = answer(instruction="Why?", max_new_tokens=2, kv_precision="u8")
    assert trace.pair["target"]["kv_precision"] == trace.pair["draft"]["kv_precision"] == "u8"


def test_where_memory_holds_one_kind_of_cache_a_run_loads_its_own_once(monkeypatch):
    pair = Dolly(tiny_folder())
    monkeypatch.setattr("pipeline.dolly.memory_bytes", lambda: 4 * pair._needed)
    pair.start(Request("Why?", max_new_tokens=2, kv_cache="stateful")).finish()
    loaded = pair.models("stateful")
    assert pair.about["kv_cache"] == "paged"  # to say what is there loads nothing
    pair.start(Request("Why?", max_new_tokens=2, kv_cache="stateful"))
    assert pair.models("stateful") is loaded

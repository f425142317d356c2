"""Caches: logits of a fresh sequence, the same bits for every size of a pass; their registry."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pipeline.errors import UserError
from pipeline.request import SETTINGS, Request
from pipeline.runtime.kv_cache.masked import MaskedKVCache
from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.runtime.kv_cache.registry import POLICIES
from pipeline.runtime.kv_cache.stateful import STATEFUL
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.caches import assert_close, fresh, model
from tests.tiny import tiny, tiny_folder

EXACT = [name for name, policy in POLICIES.items() if policy.exact]
LONGEST = 150  # tokens: several blocks of a paged cache


class CacheContract(RuleBasedStateMachine):
    kv_cache: str

    def __init__(self):
        super().__init__()
        self.sequence = model(self.kv_cache).sequence()
        self.tokens: list[int] = []

    @rule(tokens=st.lists(st.integers(0, 999), min_size=1, max_size=40), keep=st.integers(0, 9))
    def append(self, tokens, keep):
        if len(self.tokens) + len(tokens) > LONGEST:
            return
        keep = min(keep, len(tokens))
        self.tokens += tokens
        got = self.sequence.forward(tokens, keep).logits
        assert got.shape == (keep, self.sequence.vocab_size)
        if keep:
            assert_close(got, fresh(self.kv_cache, self.tokens, keep), self.kv_cache)

    @precondition(lambda self: self.tokens)
    @rule(share=st.floats(0, 1))
    def rollback(self, share):
        length = int(share * len(self.tokens))
        del self.tokens[length:]
        self.sequence.rollback(length)

    @rule(beyond=st.integers(1, 5))
    def rollback_cannot_go_forward_or_below_zero(self, beyond):
        for length in (len(self.tokens) + beyond, -beyond):
            with pytest.raises(ValueError, match="cannot roll"):
                self.sequence.rollback(length)

    @invariant()
    def its_length_is_the_tokens_that_count(self):
        assert len(self.sequence) == len(self.tokens)


def test_as_many_logits_come_back_as_are_asked_for_whatever_the_chunks_of_a_prompt():
    lm = model("paged")
    tokens = [(7 * i) % 300 for i in range(lm.compiled.prefill_chunk + 70)]
    parted = lm.sequence()
    parted.forward(tokens[:-90], logits_to_keep=0)
    expected = parted.forward(tokens[-90:], logits_to_keep=90).logits
    got = lm.sequence().forward(tokens, logits_to_keep=90).logits
    assert_close(got, expected, "paged")


@pytest.mark.parametrize("kv_cache", EXACT)
def test_logits_are_those_of_a_fresh_sequence(kv_cache):
    run_state_machine_as_test(
        type("Contract", (CacheContract,), {"kv_cache": kv_cache}),
        settings=settings(max_examples=8, stateful_step_count=10, derandomize=True),
    )


def test_states_that_cannot_be_read_are_refused():
    """OpenVINO corrupts memory where u4 states are read, which a rollback does."""
    with pytest.raises(UserError, match=r"^KV precision: “u4” — choose f32, f16, u8 for stateful"):
        OVModel(tiny_folder() / "draft", RuntimeOptions("stateful", "u4"))


@pytest.mark.parametrize("kv_cache", ["paged", "stateful-masked"])
def test_the_effective_precision_is_reported_and_sets_the_bytes(kv_cache):
    sizes = []
    for precision in get_args(KVPrecision):
        lm = OVModel(tiny_folder() / "draft", RuntimeOptions(kv_cache, precision))
        sequence = lm.sequence()
        sequence.forward([1] * 32, logits_to_keep=0)
        assert lm.kv_precision == precision
        sizes.append(sequence.kv_bytes)
    whole, half, *quantised = sizes
    assert whole == 2 * half
    assert all(less < 0.7 * more for more, less in pairwise([half, *quantised]))


def test_masked_slots_stay_and_trimmed_ones_go():
    masked, trimmed = model("stateful-masked").sequence(), model("stateful").sequence()
    for sequence in (masked, trimmed):
        sequence.forward(list(range(10)), logits_to_keep=0)
        sequence.rollback(4)
        sequence.forward([1, 2], logits_to_keep=0)
    assert masked.kv_bytes == 2 * trimmed.kv_bytes  # 12 slots against 6


ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def folder():
    return tiny_folder() / "draft"


def last_logits(lm, *passes):
    """The last logits of a sequence that shares nothing."""
    sequence = lm.sequence()
    *_, last = (sequence.forward(tokens, logits_to_keep=1).logits for tokens in passes)
    return last


def test_forward_passes_of_every_size_give_the_same_bits():
    """What lossless rests on: logits do not depend on how many tokens are verified at once."""
    tokens = np.random.default_rng(0).integers(0, 999, 90).tolist()
    alone = model("paged").sequence()
    alone.forward(tokens[:30], logits_to_keep=0)
    singles = np.concatenate(
        [alone.forward([token], logits_to_keep=1).logits for token in tokens[30:]]
    )
    for size in range(2, 10):
        together = model("paged").sequence()
        together.forward(tokens[:30], logits_to_keep=0)
        passes = [tokens[start : start + size] for start in range(30, 90, size)]
        logits = np.concatenate(
            [together.forward(each, logits_to_keep=len(each)).logits for each in passes]
        )
        assert (logits == singles).all()


def test_a_padded_forward_pass_gives_the_same_bits():
    tokens = np.random.default_rng(1).integers(0, 999, 60).tolist()
    one, padded = model("paged").sequence(), model("paged").sequence()
    for start in range(0, 60, 3):
        run = tokens[start : start + 3]
        plain = one.forward(run, logits_to_keep=3).logits
        assert (padded.forward(run, logits_to_keep=3, pad_to=9).logits == plain).all()
    assert len(padded) == 60


@pytest.mark.parametrize("precision", get_args(KVPrecision))
def test_a_shared_prefix_is_read_once_and_stays_as_it_is(precision, folder):
    """Whatever follows it, in whichever of the sequences that start from it."""
    lm = OVModel(folder, RuntimeOptions(kv_precision=precision))
    prefix = list(range(200, 240))  # a whole block, and some of another
    lm.share_prefix(prefix)
    for prompt in ([*prefix, 5, 6, 7], [*prefix, 8], [*prefix, 5, 6, 7]):
        first, second = lm.sequence(prompt=prompt), lm.sequence(prompt=prompt)
        assert len(first) == len(second) == 40
        second.forward([900, 901, 902], logits_to_keep=0)
        got = first.forward(prompt[40:], logits_to_keep=1).logits
        assert (got == last_logits(lm, prefix, prompt[40:])).all()
        first.rollback(20)  # into what is shared, and another way
        first.forward(list(range(300, 330)), logits_to_keep=0)


@pytest.mark.parametrize("prompt", [[], [1, 2], [1, 2, 3], [1, 9, 3, 4]])
def test_only_prompts_that_go_on_from_the_shared_prefix_start_there(prompt, folder):
    lm = OVModel(folder)
    lm.share_prefix([1, 2, 3])
    assert len(lm.sequence(prompt=prompt)) == 0
    assert len(lm.sequence(prompt=[1, 2, 3, 4])) == 3


def test_a_dropped_sequence_frees_its_blocks(folder):
    lm = OVModel(folder)
    for _ in range(30):
        lm.sequence().forward(list(range(200)), logits_to_keep=0)  # seven blocks
    longest = lm.sequence()
    longest.forward(list(range(800)), logits_to_keep=0)
    assert longest.cache.pool.nbytes <= 64 / 25 * longest.kv_bytes


@pytest.mark.parametrize("precision", get_args(KVPrecision))
def test_a_pool_that_grows_takes_every_sequence_along(precision, folder):
    lm = OVModel(folder, RuntimeOptions(kv_precision=precision))
    old = lm.sequence()
    old.forward(list(range(50)), logits_to_keep=0)
    lm.sequence().forward(list(range(700)), logits_to_keep=0)
    got = old.forward([50], logits_to_keep=1).logits
    assert (got == last_logits(lm, list(range(50)), [50])).all()


_AT_WORK = """
import sys, threading
from pathlib import Path
from pipeline.runtime.model import OVModel

model = OVModel(Path(sys.argv[1]))
sequence = model.sequence()
sequence.forward([1, 2, 3], 1)
held = threading.Event()

def hold():
    with model.compiled.lock:
        held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
"""


def test_a_process_does_not_wait_for_a_forward_pass_that_is_under_way(folder):
    command = [sys.executable, "-c", _AT_WORK, str(folder)]
    subprocess.run(command, check=True, timeout=60, cwd=ROOT)


SINKS, RECENT = 4, 8


class NarrowKVCache(MaskedKVCache):
    """Attends to the first tokens and to the last (Xiao et al. 2023, 2309.17453)."""

    def append(self, tokens, pad_to=0):
        inputs = super().append(tokens)
        (kept,) = np.nonzero(inputs["attention_mask"][0])
        inputs["attention_mask"][0, kept[SINKS:-RECENT]] = 0
        return inputs


def test_a_new_policy_of_the_registry_is_run_and_recorded(monkeypatch):
    policy = replace(STATEFUL, name="narrow", caches=lambda _: NarrowKVCache, exact=False)
    monkeypatch.setitem(POLICIES, "narrow", policy)
    monkeypatch.setitem(SETTINGS["kv_cache"].choices, "narrow", "the first tokens and the last")
    tokens = list(range(100, 130))
    sequence = OVModel(tiny_folder() / "draft", RuntimeOptions("narrow")).sequence()
    short = sequence.forward(tokens[: SINKS + RECENT], 1).logits
    assert (short == fresh("stateful", tokens[: SINKS + RECENT], 1)).all()
    whole = sequence.forward(tokens[SINKS + RECENT :], 1).logits
    assert not np.allclose(whole, fresh("stateful", tokens, 1), atol=0.1)
    trace = tiny().start(Request("Why?", max_new_tokens=20, kv_cache="narrow")).finish()
    assert trace.request["kv_cache"] == trace.pair["kv_cache"] == "narrow"
    assert (trace.pair["kv_block"], trace.forgets) == (None, True)
    assert trace.speculative.finish == "length"

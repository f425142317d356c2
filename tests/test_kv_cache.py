"""One contract for every cache: after any appends and rollbacks, the logits of a fresh run."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.models.pairs import EMBEDDED
from pipeline.runtime.kv_cache import KVCacheKind, KVPrecision
from pipeline.runtime.model import OVModel

ROOT = Path(__file__).resolve().parents[1]
FOLDER = EMBEDDED / "draft"  # the smaller of two real models
KINDS = get_args(KVCacheKind)
LONGEST = 150  # tokens: several blocks of a paged cache
# Of the spread of the logits. Runs of more than nine tokens take other kernels than decoding does;
# paged runs quantise activations, which makes more of the difference.
TOLERANCE = {"paged": 0.05, "stateful": 2e-3, "stateful-masked": 2e-3, "uncached": 2e-3}


@cache
def model(kind: KVCacheKind) -> OVModel:
    return OVModel(FOLDER, kind)


def fresh(kind, tokens, logits_to_keep):
    return model(kind).sequence().forward(tokens, logits_to_keep).logits


def assert_close(got, expected, kind):
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE[kind] * np.ptp(expected))


class CacheContract(RuleBasedStateMachine):
    kind: KVCacheKind

    def __init__(self):
        super().__init__()
        self.sequence = model(self.kind).sequence()
        self.tokens: list[int] = []

    @rule(tokens=st.lists(st.integers(0, 999), min_size=1, max_size=40), count=st.integers(0, 9))
    def append(self, tokens, count):
        if len(self.tokens) + len(tokens) > LONGEST:
            return
        count = min(count, len(tokens))
        self.tokens += tokens
        got = self.sequence.forward(tokens, count).logits
        assert got.shape == (count, self.sequence.vocab_size)
        if count:
            assert_close(got, fresh(self.kind, self.tokens, count), self.kind)

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


def contract(kind):
    test = type(f"Contract_{kind}", (CacheContract,), {"kind": kind}).TestCase
    test.settings = settings(
        max_examples=8, stateful_step_count=10, deadline=None, derandomize=True
    )
    return test


TestPaged = contract("paged")
TestStateful = contract("stateful")
TestMasked = contract("stateful-masked")
TestUncached = contract("uncached")


def test_paged_runs_of_every_width_give_the_same_bits():
    """What lossless rests on: logits do not depend on how many tokens are verified at once."""
    tokens = np.random.default_rng(0).integers(0, 999, 90).tolist()
    alone = model("paged").sequence()
    alone.forward(tokens[:30], logits_to_keep=0)
    singles = np.concatenate(
        [alone.forward([token], logits_to_keep=1).logits for token in tokens[30:]]
    )
    for width in range(2, 10):
        together = model("paged").sequence()
        together.forward(tokens[:30], logits_to_keep=0)
        runs = [tokens[start : start + width] for start in range(30, 90, width)]
        logits = np.concatenate(
            [together.forward(run, logits_to_keep=len(run)).logits for run in runs]
        )
        assert (logits == singles).all()


def test_a_paged_run_padded_to_a_width_gives_the_same_bits():
    tokens = np.random.default_rng(1).integers(0, 999, 60).tolist()
    one, padded = model("paged").sequence(), model("paged").sequence()
    for start in range(0, 60, 3):
        run = tokens[start : start + 3]
        plain = one.forward(run, logits_to_keep=3).logits
        assert (padded.forward(run, logits_to_keep=3, pad_to=9).logits == plain).all()
    assert len(padded) == 60


@pytest.mark.parametrize("precision", get_args(KVPrecision))
def test_a_shared_beginning_is_read_once_and_stays_as_it_is(precision):
    """Whatever follows it, in whichever of the sequences that start from it."""
    lm = OVModel(FOLDER, kv_precision=precision)
    beginning = list(range(200, 240))  # a whole block, and some of another
    lm.share(beginning)
    for prompt in ([*beginning, 5, 6, 7], [*beginning, 8], [*beginning, 5, 6, 7]):
        first, second = lm.sequence(prompt=prompt), lm.sequence(prompt=prompt)
        assert len(first) == len(second) == 40
        second.forward([900, 901, 902], logits_to_keep=0)
        got = first.forward(prompt[40:], logits_to_keep=1).logits
        assert_close(got, fresh("paged", prompt, 1), "paged")
        first.rollback(20)  # into what is shared, and another way
        first.forward(list(range(300, 330)), logits_to_keep=0)


@pytest.mark.parametrize("prompt", [[], [1, 2], [1, 2, 3], [1, 9, 3, 4]])
def test_only_prompts_that_go_on_from_the_shared_beginning_start_there(prompt):
    lm = OVModel(FOLDER)
    lm.share([1, 2, 3])
    assert len(lm.sequence(prompt=prompt)) == 0
    assert len(lm.sequence(prompt=[1, 2, 3, 4])) == 3


def test_blocks_are_given_back_by_sequences_that_are_dropped():
    lm = OVModel(FOLDER)
    for _ in range(30):
        lm.sequence().forward(list(range(200)), logits_to_keep=0)  # seven blocks
    longest = lm.sequence()
    longest.forward(list(range(800)), logits_to_keep=0)
    assert lm.pool_bytes <= 64 / 25 * longest.kv_bytes


@pytest.mark.parametrize("precision", get_args(KVPrecision))
def test_a_pool_that_grows_takes_every_sequence_along(precision):
    lm = OVModel(FOLDER, kv_precision=precision)
    old = lm.sequence()
    old.forward(list(range(50)), logits_to_keep=0)
    lm.sequence().forward(list(range(700)), logits_to_keep=0)
    got = old.forward([50], logits_to_keep=1).logits
    assert_close(got, fresh("paged", list(range(51)), 1), "paged")


@pytest.mark.parametrize("kind", KINDS)
def test_two_sequences_of_one_model_do_not_meet(kind):
    one, other = model(kind).sequence(), model(kind).sequence()
    expected = one.forward([5, 6, 7], logits_to_keep=1).logits
    one.rollback(0)
    one.forward([5, 6], logits_to_keep=0)
    other.forward([100, 200, 300, 400], logits_to_keep=0)
    assert_close(one.forward([7], logits_to_keep=1).logits, expected, kind)


def test_paged_blocks_come_and_go_with_the_sequence():
    sequence = model("paged").sequence()
    assert sequence.kv_bytes == 0
    sequence.forward(list(range(33)), logits_to_keep=0)  # padded to 64, in a block of no sequence
    two = sequence.kv_bytes
    sequence.forward(list(range(300)), logits_to_keep=0)
    assert sequence.kv_bytes == two // 2 * 11
    sequence.rollback(32)
    assert sequence.kv_bytes == two // 2
    sequence.rollback(0)
    assert sequence.kv_bytes == 0


@pytest.mark.parametrize(("precision", "size"), [("f32", 4), ("f16", 2)])
def test_the_effective_precision_is_reported_and_sets_the_bytes(precision, size):
    lm = OVModel(FOLDER, "paged", precision)
    sequence = lm.sequence()
    sequence.forward([1] * 32, logits_to_keep=0)
    whole = OVModel(FOLDER, "paged", "f32").sequence()
    whole.forward([1] * 32, logits_to_keep=0)
    assert lm.kv_precision == precision
    assert sequence.kv_bytes == whole.kv_bytes * size // 4


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_a_quantised_cache_is_smaller(kind):
    sizes = []
    for precision in ("f16", "u8", "u4"):
        sequence = OVModel(FOLDER, kind, precision).sequence()
        sequence.forward([1] * 32, logits_to_keep=0)
        sizes.append(sequence.kv_bytes)
    assert sizes[1] < 0.7 * sizes[0]
    assert sizes[2] < 0.7 * sizes[1]


def test_masked_slots_stay_and_trimmed_ones_go():
    masked, trimmed = model("stateful-masked").sequence(), model("stateful").sequence()
    for sequence in (masked, trimmed):
        sequence.forward(list(range(10)), logits_to_keep=0)
        sequence.rollback(4)
        sequence.forward([1, 2], logits_to_keep=0)
    assert masked.kv_bytes == 2 * trimmed.kv_bytes  # 12 slots against 6


_AT_WORK = """
import threading
from pipeline.runtime.model import OVModel
from pipeline.models.pairs import EMBEDDED

model = OVModel(EMBEDDED / "draft", "paged")
sequence = model.sequence()
sequence.forward([1, 2, 3], 1)
held = threading.Event()

def hold():
    with model.lock:
        held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
"""


def test_a_process_does_not_wait_for_a_run_that_is_at_work_when_it_ends():
    subprocess.run([sys.executable, "-c", _AT_WORK], check=True, timeout=60, cwd=ROOT)

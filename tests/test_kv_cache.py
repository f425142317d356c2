"""One contract for every cache: after any appends and rollbacks, the logits of a fresh sequence."""

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
from pipeline.runtime.kv_cache.registry import POLICIES
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.caches import assert_close, fresh, model
from tests.tiny import tiny_folder

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


@pytest.mark.parametrize("kv_cache", POLICIES)
def test_two_sequences_of_one_model_do_not_meet(kv_cache):
    one, other = model(kv_cache).sequence(), model(kv_cache).sequence()
    expected = one.forward([5, 6, 7], logits_to_keep=1).logits
    one.rollback(0)
    one.forward([5, 6], logits_to_keep=0)
    other.forward([100, 200, 300, 400], logits_to_keep=0)
    assert_close(one.forward([7], logits_to_keep=1).logits, expected, kv_cache)


def test_states_that_cannot_be_read_are_refused():
    """OpenVINO corrupts memory where u4 states are read, which a rollback does."""
    with pytest.raises(UserError, match=r"^KV precision: “u4” — choose f32, f16, u8 for stateful"):
        OVModel(tiny_folder() / "draft", RuntimeOptions("stateful", "u4"))


@pytest.mark.parametrize("kv_cache", ["paged", "stateful-masked"])
def test_a_quantised_cache_is_smaller(kv_cache):
    sizes = []
    for precision in ("f16", "u8", "u4"):
        sequence = OVModel(tiny_folder() / "draft", RuntimeOptions(kv_cache, precision)).sequence()
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

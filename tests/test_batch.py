"""Several sequences at once: the same texts as alone, and where speculation stops paying."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.batch import OVBatch
from lab.studies.batch import (
    AUTOREGRESSIVE,
    METHODS,
    Measured,
    Method,
    Round,
    decode,
    measured,
    rows_of,
)
from pipeline.decoding.decoders import Autoregressive
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import SamplingParams
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.caches import model
from tests.fakes import FakeLM
from tests.tiny import tiny, tiny_folder

# --- the algorithm --------------------------------------------------------------------------------


class FakeBatch:
    """Several FakeLMs, each of which reads its own tokens."""

    def __init__(self, sequences):
        self.sequences, self.token_ids = sequences, sequences[0].token_ids
        self.passes = []  # the size that each was padded to

    @property
    def lengths(self):
        return [*map(len, self.sequences)]

    def forward(self, tokens, pad_to=0):
        count = sum(map(len, tokens))
        assert count
        self.passes.append(max(count, pad_to))
        return [
            sequence.forward(each, len(each))
            for sequence, each in zip(self.sequences, tokens, strict=True)
        ]

    def rollback(self, lengths):
        for sequence, length in zip(self.sequences, lengths, strict=True):
            sequence.rollback(length)


def batches(prompts, likeness=0.7, token_ids=None):
    """Of the target and of the draft; all but the last token of each prompt is read."""
    target = FakeLM(7, 0)
    targets = [FakeLM(7, 0) for _ in prompts]
    drafts = [FakeLM(7, 1, like=target, likeness=likeness, token_ids=token_ids) for _ in prompts]
    for sequences in (targets, drafts):
        for sequence, prompt in zip(sequences, prompts, strict=True):
            sequence.forward([*prompt[:-1]], 0)
    return FakeBatch(targets), FakeBatch(drafts)


def by_itself(prompt, n):
    events = Autoregressive(FakeLM(7, 0), frozenset()).generate(prompt, SamplingParams(), n)
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


PROMPTS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=6)


@settings(max_examples=100)
@given(
    prompts=PROMPTS,
    n=st.integers(1, 20),
    k=st.integers(0, 6),
    likeness=st.floats(0, 1),
    token_ids=st.sampled_from([None, [1, 2, 4, 5]]),
)
def test_every_text_of_a_batch_is_that_of_the_sequence_alone(prompts, n, k, likeness, token_ids):
    target, draft = batches(prompts, likeness, token_ids)
    emitted = [[] for _ in prompts]
    for each in decode(target, draft if k else None, prompts, n, k):
        for text, tokens in zip(emitted, each.tokens, strict=True):
            text += tokens
        # The newest token of a text is never cached, nor are rejected ones.
        for cached in (target, draft):
            for length, prompt, text in zip(cached.lengths, prompts, emitted, strict=True):
                assert length < len(prompt) + len(text)
    assert emitted == [by_itself(prompt, n) for prompt in prompts]


def test_passes_have_one_size_for_as_many_texts_and_drafts_are_counted():
    prompts = [[1, 2], [3, 4], [5, 6]]
    target, draft = batches(prompts)
    rounds = [*decode(target, draft, prompts, 30, 4)]
    assert {*target.passes} <= {15, 10, 5}
    assert {*draft.passes} <= {6, 4, 2}
    for each in rounds:
        emitted = sum(map(len, each.tokens))
        assert each.accepted == emitted - sum(bool(tokens) for tokens in each.tokens)
        assert each.accepted <= each.tested <= 12


# --- several paged sequences in one forward pass --------------------------------------------------


def read(lm, prompts):
    sequences = [lm.sequence() for _ in prompts]
    for sequence, prompt in zip(sequences, prompts, strict=True):
        sequence.forward(prompt, logits_to_keep=0)
    return sequences


def test_a_batch_gives_each_sequence_the_bits_that_it_has_alone():
    """In passes of every mix of new tokens, over the ends of blocks, and after rollbacks."""
    rng = np.random.default_rng(0)
    lm = model("paged")
    prompts = [rng.integers(0, 999, count).tolist() for count in (5, 30, 31, 64, 90)]
    alone, batch = read(lm, prompts), OVBatch(lm.compiled, read(lm, prompts))
    for counts in ((1,) * 5, (5,) * 5, (3, 0, 1, 9, 2), (1, 0, 0, 0, 0), (0, 7, 0, 7, 0)):
        tokens = [rng.integers(0, 999, count).tolist() for count in counts]
        got = batch.forward(tokens, pad_to=int(rng.integers(0, 40)))
        for sequence, new, (logits, _) in zip(alone, tokens, got, strict=True):
            assert (logits == sequence.forward(new, len(new)).logits).all()
        kept = [len(sequence) - int(rng.integers(0, 4)) for sequence in alone]
        batch.rollback(kept)
        for sequence, length in zip(alone, kept, strict=True):
            sequence.rollback(length)
        assert batch.lengths == kept == [*map(len, alone)]


def test_sequences_that_cannot_share_a_pass_are_refused():
    stateful = model("stateful")
    with pytest.raises(ValueError, match="paged"):
        OVBatch(stateful.compiled, [stateful.sequence()])
    quantised = OVModel(tiny_folder() / "draft", RuntimeOptions(kv_precision="u8"))
    with pytest.raises(ValueError, match="quantised"):
        OVBatch(quantised.compiled, [quantised.sequence()])


# --- the experiment -------------------------------------------------------------------------------

OWN, IMPOSED = Method(4), Method(4, 0.8)


def batch_of(size, method, seconds, tokens=1, texts=((1, 2),), tested=0, accepted=0):
    """A batch whose rounds take so long and emit so many tokens of each sequence."""
    each = Round(((0,) * tokens,) * size, seconds, tested, accepted)
    return Measured(size, method, (each, each), texts * size)


def test_a_row_has_the_rate_of_all_sequences_and_the_speedup_at_their_number():
    made = [
        batch_of(4, AUTOREGRESSIVE, 0.02),
        batch_of(4, OWN, 0.03, tokens=3, tested=10, accepted=8),
        batch_of(4, IMPOSED, 0.03, tokens=3, texts=((1, 3),)),
    ]
    slow, own, imposed = rows_of(made, [(1, 2)] * 3 + [(1, 9)])
    assert slow["rate"] == pytest.approx(4 / 0.02)
    assert own["rate"] == pytest.approx(12 / 0.03)
    assert own["ms"] == pytest.approx(30 / 12)
    assert own["speedup"] == pytest.approx(2)
    assert own["block"] == 3
    assert own["acceptance"] == pytest.approx(0.8)
    assert own["identical"] == pytest.approx(3 / 4)  # the fourth alone is another text
    assert imposed["identical"] is None
    assert ["imposed" in row["method"] for row in (own, imposed)] == [False, True]


def test_every_size_is_measured_with_every_method():
    results = [*measured(tiny(), (1, 4), max_new_tokens=16, repeats=1)]
    last = results[-1]
    assert last.complete
    assert len(last.rows) == 2 * len(METHODS)
    for row in last.rows:
        assert row["rate"] > 0
        assert row["identical"] in (1, None)
    imposed = [row for row in last.rows if "imposed" in row["method"]]
    for row in imposed:
        assert row["acceptance"] == pytest.approx(0.8, abs=0.2)

"""Logits that are no numbers, and tokens that the target does not know, end a run with one line."""

import pickle

import numpy as np
import pytest

from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters.block import BlockDrafter
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft
from pipeline.errors import LogitsError, UserError
from tests.fakes import FakeBlock, FakeLM
from ui.chat.errors import chat_error
from ui.errors import logged_line

VOCAB, PROMPT, NEVER = 6, [1, 2, 3], frozenset()
WAYS = [SamplingParams(), SamplingParams(0.8), SamplingParams(1.0, top_k=3, top_p=0.9)]


def damaged(model, value):
    """The model with one logit of every row replaced."""
    model.table[:, :, 2] = value
    return model


def decoder(target, draft, kind):
    target.hidden = lambda token: [0.0]
    if kind == "autoregressive":
        return Autoregressive(target, NEVER), (target,)
    drafters = {
        "model": lambda: ModelDrafter(draft, VOCAB, NEVER),
        "block": lambda: BlockDrafter(FakeBlock(draft), VOCAB, NEVER),
        "stranger": lambda: Stranger(draft, VOCAB, NEVER),
    }
    return Speculative(target, drafters[kind](), lambda: Fixed(3), NEVER), (target, draft)


class Stranger(ModelDrafter):
    """Proposes a token of another vocabulary."""

    def propose(self, *asked):
        return Draft((0, VOCAB))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("params", WAYS)
@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("autoregressive", "target"),
        *((kind, role) for kind in ("model", "block") for role in ("target", "draft")),
    ],
)
def test_logits_that_are_no_numbers_end_in_one_line_that_names_the_model(kind, role, params, value):
    models = {name: FakeLM(VOCAB, seed) for seed, name in enumerate(("target", "draft"))}
    damaged(models[role], value)
    failing, used = decoder(*models.values(), kind)
    with pytest.raises(LogitsError) as caught:
        [*failing.generate(PROMPT, params, 40)]
    assert str(caught.value).startswith(f"{role} logits: {value} — its weights are damaged")
    assert not any(map(len, used))  # the caches are left as after any run


@pytest.mark.parametrize("params", WAYS)
def test_a_token_that_is_impossible_is_no_failure(params):
    """Logits of minus infinity, as of tokens that a model may never emit."""
    target = damaged(FakeLM(VOCAB, 0), -np.inf)
    *_, end = Autoregressive(target, NEVER).generate(PROMPT, params, 10)
    assert end.reason == "length"


@pytest.mark.parametrize("params", WAYS)
def test_a_drafted_token_that_the_target_does_not_know_is_one_line(params):
    failing, _ = decoder(FakeLM(VOCAB, 0), FakeLM(VOCAB, 1), "stranger")
    with pytest.raises(LogitsError, match="drafted token: 6 — the target has 6 tokens"):
        [*failing.generate(PROMPT, params, 40)]


def test_it_reads_as_any_error_and_is_logged_as_one_that_no_user_caused(caplog):
    error = LogitsError("target logits", np.nan, "choose f32 weights")
    line = "target logits: nan — choose f32 weights."
    assert isinstance(error, UserError)
    assert logged_line(error) == line
    assert "target logits" in caplog.text
    found = chat_error(error)
    assert (found.status, found.message) == (500, line)
    assert pickle.loads(pickle.dumps(error)).args == error.args

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

VOCAB, PROMPT = 6, [1, 2, 3]
WAYS = [SamplingParams(), SamplingParams(0.8), SamplingParams(1.0, top_k=3, top_p=0.9)]
DAMAGES = [np.nan, np.inf]


def damaged(model, value, tokens=1):
    """The model with one logit of some rows replaced; the others stay as they are."""
    model.table[:, -tokens:, 2] = value
    return model


def speculative(target, drafter, params):
    decoder = Speculative(target, drafter, lambda: Fixed(3), frozenset())
    return [*decoder.generate(PROMPT, params, 40)]


def model_drafter(draft):
    return ModelDrafter(draft, VOCAB, frozenset())


@pytest.mark.parametrize("value", DAMAGES)
@pytest.mark.parametrize("params", WAYS)
def test_a_target_whose_logits_are_no_numbers_ends_in_one_line(params, value):
    target = damaged(FakeLM(VOCAB, 0), value, VOCAB)
    with pytest.raises(LogitsError) as caught:
        [*Autoregressive(target, frozenset()).generate(PROMPT, params, 40)]
    assert str(caught.value).startswith(f"target logits: {value} — its weights are damaged")
    assert len(target) == 0  # the cache is left as after any run


@pytest.mark.parametrize("value", DAMAGES)
@pytest.mark.parametrize("params", WAYS)
def test_the_verifying_pass_of_the_target_is_checked_too(params, value):
    target = damaged(FakeLM(VOCAB, 0), value, VOCAB)
    drafter = model_drafter(FakeLM(VOCAB, 1))
    with pytest.raises(LogitsError, match="target logits"):
        speculative(target, drafter, params)
    assert len(target) == len(drafter) == 0


@pytest.mark.parametrize("value", DAMAGES)
@pytest.mark.parametrize("params", WAYS)
@pytest.mark.parametrize("of", [model_drafter, lambda draft: block_drafter(draft)])
def test_a_draft_whose_logits_are_no_numbers_is_named_as_the_draft(of, params, value):
    target = FakeLM(VOCAB, 0)
    target.hidden = lambda token: [0.0]
    draft = damaged(FakeLM(VOCAB, 1), value, VOCAB)
    with pytest.raises(LogitsError, match="draft logits"):
        speculative(target, of(draft), params)


def block_drafter(draft):
    return BlockDrafter(FakeBlock(draft), VOCAB, frozenset())


@pytest.mark.parametrize("params", WAYS)
def test_a_token_that_is_impossible_is_no_failure(params):
    """Logits of minus infinity, as of tokens that a model may never emit."""
    target = damaged(FakeLM(VOCAB, 0), -np.inf, VOCAB)
    *_, end = Autoregressive(target, frozenset()).generate(PROMPT, params, 10)
    assert end.reason == "length"


class Stranger(ModelDrafter):
    """Proposes a token of another vocabulary."""

    def propose(self, *asked):
        return Draft((0, VOCAB))


@pytest.mark.parametrize("params", WAYS)
def test_a_drafted_token_that_the_target_does_not_know_is_one_line(params):
    with pytest.raises(LogitsError, match="drafted token: 6 — the target has 6 tokens"):
        speculative(FakeLM(VOCAB, 0), Stranger(FakeLM(VOCAB, 1), VOCAB, frozenset()), params)


def test_it_reads_as_any_error_and_is_logged_as_one_that_no_user_caused(caplog):
    error = LogitsError("target logits", np.nan, "choose f32 weights")
    line = "target logits: nan — choose f32 weights."
    assert isinstance(error, UserError)
    assert logged_line(error) == line
    assert "target logits" in caplog.text
    found = chat_error(error)
    assert (found.status, found.message) == (500, line)
    assert pickle.loads(pickle.dumps(error)).args == error.args

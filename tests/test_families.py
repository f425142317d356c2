"""In every model family, rollback is exact and speculation does not change greedy text.

`pytest -n 0 -s tests/test_families.py` prints what holds in each.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters.lookup import LookupDrafter
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.sampling import SamplingParams
from pipeline.models.export import export
from pipeline.runtime.ir import read_model
from pipeline.runtime.kv_cache.policy import UnsupportedPolicyError
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, FALLBACK_POLICY
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.fakes import steps_of, tokens_of
from tests.families import CONTEXT, FAMILIES, VOCABULARY, make_checkpoint, spelled_out_attention

GREEDY, NEVER = SamplingParams(), frozenset()
SPELLED_OUT = "gpt_neox with attention spelled out"
TEXT = np.random.default_rng(0).integers(1, VOCABULARY, 60).tolist()


@dataclass(frozen=True)
class Family:
    name: str
    folder: Path
    model: OVModel
    logits: np.ndarray
    hidden: np.ndarray  # the residual stream after each of the two layers


@pytest.fixture(scope="module", params=[*FAMILIES, SPELLED_OUT])
def family(request, tmp_path_factory):
    """Compiled with the best cache that it can have, and what torch says of `TEXT`."""
    folder = tmp_path_factory.mktemp("family")
    checkpoint = make_checkpoint(request.param.split()[0], folder / "checkpoint")
    layers = next(m for m in checkpoint.modules() if isinstance(m, torch.nn.ModuleList))
    last: list[torch.Tensor] = []  # transformers' own is normalised already
    layers[-1].register_forward_hook(
        lambda layer, inputs, output: last.append(output if torch.is_tensor(output) else output[0])
    )
    with torch.no_grad():
        said = checkpoint(torch.tensor([TEXT]), output_hidden_states=True)
    hidden = np.concatenate([said.hidden_states[1][0], last[0][0]], axis=1)
    with spelled_out_attention() if request.param == SPELLED_OUT else nullcontext():
        folder = export(folder / "checkpoint", folder / "ir", "int8")
    try:
        model = OVModel(folder)
    except UnsupportedPolicyError:
        model = OVModel(folder, RuntimeOptions(FALLBACK_POLICY))
    return Family(request.param, folder, model, said.logits[0].numpy(), hidden)


def test_cached_logits_are_those_of_the_checkpoint(family):
    model = family.model
    sequence = model.sequence()
    got = [sequence.forward(TEXT[:40], logits_to_keep=1).logits]
    got += [sequence.forward(TEXT[at : at + 4], logits_to_keep=4).logits for at in range(40, 60, 4)]
    # MPT through the paged transformation: 0.39.
    assert error(np.concatenate(got), family.logits[39:]) < 0.1
    assert model.context_length in (CONTEXT, 2048)  # some have no end


def test_attention_that_a_graph_spells_out_has_the_paged_cache_too(family):
    if family.name == SPELLED_OUT:
        kinds = {node.get_type_name() for node in read_model(family.folder).get_ops()}
        assert "ScaledDotProductAttention" not in kinds
    expected = FALLBACK_POLICY if family.name == "mpt" else DEFAULT_POLICY
    assert family.model.policy.name == expected


def test_hidden_states_are_those_of_the_checkpoint(family):
    for kv_cache in {family.model.policy.name, FALLBACK_POLICY}:
        sequence = OVModel(family.folder, RuntimeOptions(kv_cache), (0, 1)).sequence()
        got = [sequence.forward(TEXT[:40], logits_to_keep=0).hidden]
        got += [sequence.forward(TEXT[at : at + 4], 1, pad_to=6).hidden for at in range(40, 60, 4)]
        layers = np.split(np.concatenate(got), 2, axis=1)
        for layer, expected in zip(layers, np.split(family.hidden, 2, axis=1), strict=True):
            assert error(layer, expected) < 0.1


def test_after_a_rollback_nothing_is_left_of_what_was(family):
    model = family.model
    straight, back = model.sequence(), model.sequence()
    for sequence in (straight, back):
        sequence.forward(TEXT[:40], logits_to_keep=0)
    back.forward([7, 8, 9, 10], logits_to_keep=4)
    back.rollback(40)
    assert (
        back.forward(TEXT[40:44], logits_to_keep=4).logits
        == straight.forward(TEXT[40:44], logits_to_keep=4).logits
    ).all()


def test_greedy_speculation_equals_autoregression(family, capsys):
    model = family.model
    accepted = tested = 0
    for start in range(0, 40, 8):
        prompt = TEXT[start : start + 12]
        slow = decoded(Autoregressive(model.sequence(), NEVER), prompt)
        for drafter in (
            LookupDrafter(NEVER),
            Forgetful(model.sequence(), model.vocab_size, NEVER),
        ):
            fast = decoded(Speculative(model.sequence(), drafter, partial(Fixed, 4), NEVER), prompt)
            assert tokens_of(fast) == tokens_of(slow)
            accepted += sum(step.accepted for step in fast)
            tested += sum(step.tested for step in fast)
    assert 0 < accepted < tested
    with capsys.disabled():
        drafts = f"{accepted} of {tested} drafts accepted"
        print(f"\n| {family.name} | {model.policy.name} | yes | yes | yes ({drafts}) |")


def error(got, expected):
    """Root mean square, of the spread. INT8 weights against float32 make it 0.01 to 0.06."""
    return np.sqrt(((got - expected) ** 2).mean()) / expected.std()


class Forgetful(ModelDrafter):
    """Drafts as the model does, but for the third token of each draft."""

    def propose(self, tokens, max_tokens, params, rng, should_continue=None):
        draft = super().propose(tokens, max_tokens, params, rng, should_continue)
        wrong = tuple(token ^ (place == 2) for place, token in enumerate(draft.tokens))
        return type(draft)(wrong)


def decoded(decoder, prompt):
    return steps_of(decoder.generate(prompt, GREEDY, 40))

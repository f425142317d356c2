"""In every model family, rollback is exact and speculation does not change greedy text.

`pytest tests/test_families.py -s` prints the table of `benchmarks/README.md`.
"""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pipeline.decoding.decoders import Autoregressive, Speculative  # noqa: E402
from pipeline.decoding.draft_length import Fixed  # noqa: E402
from pipeline.decoding.drafters import ModelDrafter, PromptLookupDrafter  # noqa: E402
from pipeline.decoding.events import Step  # noqa: E402
from pipeline.decoding.sampling import SamplingParams  # noqa: E402
from pipeline.models.export import export  # noqa: E402
from pipeline.runtime.kv_cache.policy import UnsupportedPolicyError  # noqa: E402
from pipeline.runtime.model import OVModel  # noqa: E402
from tests.families import CONTEXT, FAMILIES, VOCABULARY, make_checkpoint  # noqa: E402

GREEDY, NEVER = SamplingParams(), frozenset()
TEXT = np.random.default_rng(0).integers(1, VOCABULARY, 60).tolist()


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    """Its name, its compiled model, and torch's own logits of `TEXT`."""
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = make_checkpoint(request.param, folder / "checkpoint")
    with torch.no_grad():
        logits = checkpoint(torch.tensor([TEXT])).logits[0].numpy()
    folder = export(folder / "checkpoint", folder / "ir", "int8")
    try:
        return request.param, OVModel(folder), logits
    except UnsupportedPolicyError:
        return request.param, OVModel(folder, "stateful"), logits


def test_cached_logits_are_those_of_the_checkpoint(family):
    _, model, expected = family
    sequence = model.sequence()
    got = [sequence.forward(TEXT[:40], logits_to_keep=1).logits]
    got += [sequence.forward(TEXT[at : at + 4], logits_to_keep=4).logits for at in range(40, 60, 4)]
    difference = np.concatenate(got) - expected[39:]
    # INT8 weights against float32: 0.03 to 0.05. MPT through the paged transformation: 0.39.
    assert np.sqrt((difference**2).mean()) < 0.1 * expected.std()
    assert model.context_length in (CONTEXT, 2048)  # some have no end


def test_after_a_rollback_nothing_is_left_of_what_was(family):
    _, model, _ = family
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
    name, model, _ = family
    accepted = tested = 0
    for start in range(0, 40, 8):
        prompt = TEXT[start : start + 12]
        slow = decoded(Autoregressive(model.sequence(), NEVER), prompt)
        for drafter in (
            PromptLookupDrafter(NEVER),
            Forgetful(model.sequence(), model.vocab_size, NEVER),
        ):
            fast = decoded(Speculative(model.sequence(), drafter, partial(Fixed, 4), NEVER), prompt)
            assert tokens(fast) == tokens(slow)
            accepted += sum(step.accepted for step in fast)
            tested += sum(min(step.accepted + 1, len(step.drafted)) for step in fast)
    assert 0 < accepted < tested
    with capsys.disabled():
        drafts = f"{accepted} of {tested} drafts accepted"
        print(f"\n| {name} | {model.policy.name} | yes | yes | yes ({drafts}) |")


class Forgetful(ModelDrafter):
    """Drafts as the model does, but for the third token of each draft."""

    def propose(self, tokens, k, params, rng, go_on=None):
        draft = super().propose(tokens, k, params, rng, go_on)
        wrong = tuple(token ^ (place == 2) for place, token in enumerate(draft.tokens))
        return type(draft)(wrong)


def decoded(decoder, prompt):
    return [event for event in decoder.generate(prompt, GREEDY, 40) if isinstance(event, Step)]


def tokens(steps):
    return [token for step in steps for token in step.tokens]

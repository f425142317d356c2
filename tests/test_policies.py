"""A cache policy is its file and its place in the registry; nothing else knows which there are."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.__main__ import main
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.runtime.kv_cache.masked import MaskedKVCache
from pipeline.runtime.kv_cache.policy import CachePolicy, UnsupportedPolicyError
from pipeline.runtime.kv_cache.registry import (
    DEFAULT_POLICY,
    FALLBACK_POLICY,
    POLICIES,
    find_policy,
)
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.caches import fresh
from tests.fake_dolly import FakeDolly, loader_of
from tests.served import PLAIN
from tests.tiny import tiny, tiny_folder
from ui.page import Page
from ui.verdict import verdict

SINKS, RECENT = 4, 8


class NarrowKVCache(MaskedKVCache):
    """Attends to the first tokens and to the last (Xiao et al. 2023, 2309.17453)."""

    def append(self, tokens, pad_to=0):
        inputs = super().append(tokens)
        (kept,) = np.nonzero(inputs["attention_mask"][0])
        inputs["attention_mask"][0, kept[SINKS:-RECENT]] = 0
        return inputs


@pytest.fixture
def narrow(monkeypatch):
    policy = CachePolicy(
        name="narrow",
        summary="the first tokens and the last",
        about="of the first tokens and of the last.",
        caches=lambda setup: NarrowKVCache,
        exact=False,
    )
    monkeypatch.setitem(POLICIES, policy.name, policy)
    return policy.name


def test_a_model_takes_a_new_policy_from_the_registry(narrow):
    tokens = list(range(100, 130))
    sequence = OVModel(tiny_folder() / "draft", RuntimeOptions(narrow)).sequence()
    short = sequence.forward(tokens[: SINKS + RECENT], 1).logits
    assert (short == fresh("stateful", tokens[: SINKS + RECENT], 1)).all()
    whole = sequence.forward(tokens[SINKS + RECENT :], 1).logits
    assert not np.allclose(whole, fresh("stateful", tokens, 1), atol=0.1)


def test_a_request_and_its_trace_name_a_new_policy(narrow):
    trace = tiny().start(Request("Why?", max_new_tokens=20, kv_cache=narrow)).finish()
    assert trace.request["kv_cache"] == trace.pair["kv_cache"] == narrow
    assert trace.pair["kv_block"] is None
    assert trace.speculative.finish == "length"


def test_the_page_promises_no_identical_text_from_a_cache_that_is_not_exact(narrow):
    trace = tiny().start(Request("Why?", max_new_tokens=3)).finish()
    assert verdict(trace)["same"] == "Identical text."
    assert verdict(replace(trace, pair={"kv_cache": narrow}))["same"] == "Not exact."


def test_the_command_line_lists_a_new_policy(narrow, capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert narrow in capsys.readouterr().out


def test_the_page_offers_a_new_policy(narrow):
    drawn = Page(loader_of(FakeDolly(PLAIN))).blocks.blocks.values()
    (menu,) = (one for one in drawn if getattr(one, "label", None) == "KV cache")
    assert menu.choices[-1] == ("narrow: the first tokens and the last, f32", narrow)
    assert "precision" in menu.info


def test_a_trace_names_the_tokens_that_a_block_holds():
    trace = tiny().start(Request("Why?", max_new_tokens=1)).finish()
    assert trace.pair["kv_block"] == POLICIES[DEFAULT_POLICY].block_size == 32


@pytest.mark.parametrize("name", ["disk", "", None, ["paged"], 1])
def test_an_unknown_policy_is_one_line_that_names_those_there_are(name):
    with pytest.raises(UserError, match=rf"^KV cache: .*{', '.join(POLICIES)}\.$"):
        find_policy(name)


def test_a_policy_that_a_model_cannot_have_is_replaced_with_a_note(monkeypatch):
    def refuse(model, family, device):
        raise UnsupportedPolicyError("not today")

    policy = POLICIES[DEFAULT_POLICY]
    monkeypatch.setitem(
        POLICIES,
        "odd",
        CachePolicy(name="odd", summary="", about="", caches=policy.caches, prepare=refuse),
    )
    models = tiny().models("odd")
    assert models.policy.name == FALLBACK_POLICY
    assert models.note == f"no odd cache here (not today): the {FALLBACK_POLICY} one is used"

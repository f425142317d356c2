"""Each value out of range is one line that names the field, the value and the remedy."""

import math
import pickle

import pytest

from pipeline.errors import UserError
from pipeline.request import Request


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("draft_length", 0, "draft length"),
        ("draft_length", 9, "draft length"),
        ("draft_length", 2.5, "draft length"),
        ("max_new_tokens", 0, "new tokens"),
        ("max_new_tokens", 10**9, "new tokens"),
        ("max_new_tokens", True, "new tokens"),
        ("temperature", -1, "temperature"),
        ("temperature", math.nan, "temperature"),
        ("temperature", math.inf, "temperature"),
        ("temperature", None, "temperature"),
        ("top_p", 0, "top-p"),
        ("top_p", 1.1, "top-p"),
        ("top_k", -1, "top-k"),
        ("seed", -1, "seed"),
        ("seed", "7", "seed"),
        ("kv_cache", "disk", "KV cache"),
        ("drafter", "oracle", "drafter"),
        ("kv_precision", "u2", "KV precision"),
        ("verification", "twice", "verification"),
        ("verification", ["block"], "verification"),
        ("context", "a\0", "context"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_remedy(field, value, name):
    with pytest.raises(UserError) as caught:
        Request("Why?", **{field: value})
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert " — " in message
    assert "\n" not in message


def test_the_edges_of_every_range_are_allowed():
    Request("Why?", draft_length=1, max_new_tokens=1, temperature=0, top_p=1, top_k=0, seed=0)
    Request("Why?", draft_length="auto")
    Request("Why?", draft_length=8, temperature=5.0, top_p=0.01, seed=2**32 - 1)


def test_errors_cross_a_process_border():
    error = UserError("seed", -1, "choose another")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)

"""Packed training examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs torch (requirements-dev.txt)")

from lab.training import packing


@given(prompt=st.integers(2, 9), size=st.integers(1, 9), prefix=st.integers(0, 1))
def test_the_loss_is_on_the_response_only(prompt: int, size: int, prefix: int) -> None:
    response = list(range(100, 100 + size))
    made = packing.example(prefix, list(range(prompt)), response)
    assert len(made.tokens) == len(made.targets) == prompt - prefix + size - 1
    assert [target for target in made.targets if target != packing.IGNORED] == response

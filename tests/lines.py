"""The one line that a user reads of an error."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.errors import UserError


@contextmanager
def one_line(match: str) -> Iterator[None]:
    """What is done within raises a `UserError` of one line in which the pattern is found."""
    with pytest.raises(UserError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value)

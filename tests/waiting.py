"""Waiting for what another thread does."""

import time
from collections.abc import Callable

PATIENCE = 60.0  # seconds; others may use the cores


def wait_until(condition: Callable[[], object]) -> None:
    """Returns as soon as the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

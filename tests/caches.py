"""The tiny pair's draft with each cache, for the tests of caches."""

from functools import cache

import numpy as np

from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.tiny import tiny_folder

# Of the spread of the logits. Passes of more than nine tokens take other kernels than decoding
# does; paged ones quantise activations, which makes more of the difference.
_TOLERANCE = {"paged": 0.05}


@cache
def model(kv_cache: str) -> OVModel:
    return OVModel(tiny_folder() / "draft", RuntimeOptions(kv_cache))


def fresh(kv_cache, tokens, logits_to_keep):
    return model(kv_cache).sequence().forward(tokens, logits_to_keep).logits


def assert_close(got, expected, kv_cache):
    tolerance = _TOLERANCE.get(kv_cache, 2e-3)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.ptp(expected))

"""The registry of cache policies. To add one, write a module here and list it in `POLICIES`."""

from __future__ import annotations

from pipeline.errors import find_entry
from pipeline.runtime.kv_cache.masked import MASKED
from pipeline.runtime.kv_cache.mass import MASS
from pipeline.runtime.kv_cache.paged import PAGED
from pipeline.runtime.kv_cache.policy import CachePolicy
from pipeline.runtime.kv_cache.stateful import STATEFUL
from pipeline.runtime.kv_cache.uncached import UNCACHED
from pipeline.runtime.kv_cache.window import WINDOW

DEFAULT_POLICY = PAGED.name
FALLBACK_POLICY = STATEFUL.name  # for every model and device

# By name, in the order of menus.
POLICIES: dict[str, CachePolicy] = {
    policy.name: policy for policy in (PAGED, STATEFUL, MASKED, UNCACHED, WINDOW, MASS)
}


def find_policy(name: str) -> CachePolicy:
    """The policy of that name; raises UserError if there is none."""
    return find_entry(POLICIES, "KV cache", name)

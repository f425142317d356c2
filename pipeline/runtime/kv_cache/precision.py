"""The precision of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import openvino as ov

KVPrecision = Literal["f32", "f16", "u8", "u4"]


def effective_precision(compiled: ov.CompiledModel) -> ov.Type:
    """The type of a compiled model's keys and values. It may differ from the requested one, since
    an IR's own settings take precedence. Devices without this property use their inference type.
    """
    names = compiled.get_property("SUPPORTED_PROPERTIES")
    name = "KV_CACHE_PRECISION" if "KV_CACHE_PRECISION" in names else "INFERENCE_PRECISION_HINT"
    return compiled.get_property(name)

"""The registry of model pairs: targets, drafts, and their descriptions.

A target alone is a pair without a draft.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

from pipeline.decoding.drafters import DEFAULT_DRAFTER, check_drafter, drafters_with
from pipeline.decoding.drafters.lookup import LOOKUP
from pipeline.errors import UserError

Weights = Literal["f32", "fp16", "int8", "int4", "int4-asym"]

_ASSETS = Path(__file__).resolve().parents[2] / "assets" / "models"
EMBEDDED = _ASSETS / "dolly-smol"  # the default pair
BITS: Mapping[Weights, float] = {  # of a weight, with its part of a scale
    "f32": 32,
    "fp16": 16,
    "int8": 8.1,
    "int4": 4.5,
    "int4-asym": 4.6,
}
_CHECKPOINTBITS = 16  # as models are published
_MEMORY_FACTOR = 1.15  # on the weights: caches, activations, and the program itself


@dataclass(frozen=True, slots=True)
class Model:
    """A causal language model, which may have to be downloaded first.

    Args:
        id: its name on the Hugging Face Hub, with `@revision` for another one than main; or a
            folder with a transformers checkpoint or an OpenVINO IR; or a GGUF file.
        weights: the precision of the weights in the IR; an existing IR keeps its own.
        parameters: their approximate number; 0 if unknown.
        licence: as named by its publisher.
        remote_code: whether code from its repository may run during conversion.
    """

    id: str
    weights: Weights = "int8"
    parameters: int = 0
    licence: str = "see its own card"
    remote_code: bool = False

    def __post_init__(self) -> None:
        if self.weights not in get_args(Weights):
            raise UserError("weights", self.weights, f"choose {', '.join(get_args(Weights))}")

    @property
    def name(self) -> str:
        """A display name; for a folder or a file, the last two parts of its path."""
        return "/".join(PurePath(self.id).parts[-2:])

    @property
    def download_bytes(self) -> int:
        """Approximate size of its checkpoint; a published IR is smaller."""
        return self.parameters * _CHECKPOINTBITS // 8

    @property
    def ir_bytes(self) -> int:
        """Approximate size of its IR."""
        return int(self.parameters * BITS[self.weights] / 8)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the running model."""
        return int(self.ir_bytes * _MEMORY_FACTOR)


@dataclass(frozen=True, slots=True)
class Example:
    """An example to click. `settings` are fields of a `Request`, where they are part of it."""

    label: str
    instruction: str
    context: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its draft, if it has one.

    Args:
        name: on the command line.
        title: on the page.
        note: one line that describes the pair and its limits.
        target, draft: the models, which must have the same tokenizer. None without a draft.
        block: the folder of a block draft's IR for the target, if there is one.
        examples: example requests for the page.
    """

    name: str
    title: str
    note: str
    target: Model
    draft: Model | None
    examples: tuple[Example, ...]
    block: Path | None = None

    @property
    def models(self) -> tuple[Model, ...]:
        """The target, then the draft if there is one."""
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def required_draft(self) -> Model:
        """The draft, for what compares draft models.

        Raises:
            UserError: there is none.
        """
        if self.draft is None:
            raise UserError("pair", self.name, "has no draft model; choose a pair that has one")
        return self.draft

    @property
    def drafters(self) -> tuple[str, ...]:
        """The names of the drafters that can draft for it, in the order of menus."""
        return drafters_with(self.draft is not None, self.block is not None)

    def check_drafter(self, name: str) -> None:
        """Raises UserError unless that drafter can draft for it."""
        check_drafter(name, self.draft is not None, self.block is not None)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the page begins with, as fields of a `Request`, where that is not the default: the
        fastest for a pair with a block draft, and what there is without a draft.
        """
        if self.block:
            return {"drafter": "hybrid", "draft_length": "auto"}
        if DEFAULT_DRAFTER in self.drafters:
            return {}
        return {"drafter": LOOKUP.name, "draft_length": "auto"}

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of its running models."""
        return sum(model.memory_bytes for model in self.models)

    def with_weights(self, target: Weights | None, draft: Weights | None) -> Pair:
        """The pair with other precisions; None keeps the current one."""
        smaller = self.draft and replace(self.draft, weights=draft or self.draft.weights)
        larger = replace(self.target, weights=target or self.target.weights)
        return replace(self, target=larger, draft=smaller)


_HIGH_TEMPERATURE = {"temperature": 1.5, "draft_length": 8}
_FROM_CONTEXT = Example(
    "Answer from a context",
    "When was the bridge opened, and how long is it?",
    "The Forth Bridge is a cantilever railway bridge in Scotland. It was opened on 4 March 1890 "
    "and has a total length of 2,467 metres.",
)
_REEF = (
    "The Great Barrier Reef is the world's largest coral reef system, composed of over 2,900 "
    "individual reefs and 900 islands stretching for over 2,300 kilometres. It lies in the Coral "
    "Sea, off the coast of Queensland, Australia. The reef can be seen from outer space and is the "
    "world's biggest single structure made by living organisms."
)
_SPECULATION = (
    "Speculative decoding lets a small draft model guess the next tokens of a text. The large "
    "target model then checks all guesses in one forward pass, keeps those that it agrees with, "
    "and replaces the first that it does not. The text is the same as without guesses, but it "
    "needs fewer passes of the large model."
)
_EMBEDDED_EXAMPLES = (  # of two, the median speedups on two cores: 2.7 of the reef, 0.6 of the poem
    Example("Steps to plant a tree", "What are the steps to plant a tree?"),
    Example("Why exercise?", "What are the benefits of regular exercise?"),
    Example("A weekend in the mountains", "What should I pack for a weekend in the mountains?"),
    Example("What is speculative decoding?", "What is speculative decoding?", _SPECULATION),
    Example("Wins: much to copy", "What is special about the reef?", _REEF),
    Example(
        "Loses: high temperature",
        "Write a short poem about spring",
        settings=_HIGH_TEMPERATURE,
    ),
)
_EXAMPLES = (
    Example("Why is the sky blue?", "Explain why the sky is blue"),
    Example("Ideas for a gift", "Give me five ideas for a birthday gift for my grandmother."),
    Example("A short story", "Write a short story about a dog who finds a map."),
    _FROM_CONTEXT,
    Example(
        "High temperature, eight drafts",
        "Write a short story about a dog who finds a map.",
        settings=_HIGH_TEMPERATURE,
    ),
)
_CODE_EXAMPLES = (
    Example(
        "Fibonacci numbers", "Write a Python function that returns the first n Fibonacci numbers."
    ),
    Example(
        "Type hints: much to copy",
        "Add type hints to this function.",
        "def mean(values, weights=None):\n"
        "    if weights is None:\n"
        "        weights = [1] * len(values)\n"
        "    total = sum(value * weight for value, weight in zip(values, weights))\n"
        "    return total / sum(weights)",
    ),
    Example("Reverse a linked list", "Explain how to reverse a linked list, with code in C."),
)
_DOLLY = {
    size: Model(f"databricks/dolly-v2-{size}", parameters=parameters, licence="MIT")
    for size, parameters in (("3b", 2_775_086_080), ("7b", 6_856_056_832), ("12b", 11_841_894_400))
}
_QWEN_CODER = {
    size: Model(f"Qwen/Qwen2.5-Coder-{name}-Instruct", parameters=count, licence="Apache-2.0")
    for size, name, count in (("0.5b", "0.5B", 494_032_768), ("1.5b", "1.5B", 1_543_714_304))
}
_PYTHIA = {
    size: Model(f"EleutherAI/pythia-{size}", parameters=parameters, licence="Apache-2.0")
    for size, parameters in (("160m", 162_322_944), ("410m", 405_334_016))
}


def _dolly(size: str, draft: Model) -> Pair:
    return Pair(
        name=f"dolly-v2-{size}",
        title=f"Dolly v2 {size.upper()}, draft {draft.id.split('/')[1]}",
        note="Databricks’ instruction-following model of 2023. Its answers can be wrong.",
        target=_DOLLY[size],
        draft=draft,
        examples=_EXAMPLES,
    )


DEFAULT_PAIR = "dolly-smol"
PAIRS = {
    pair.name: pair
    for pair in (
        Pair(
            name=DEFAULT_PAIR,
            title="SmolLM2-135M tuned on Dolly",
            note="Made for this page with Dolly’s instructions; not Dolly v2. It answers what is "
            "asked; its facts are often wrong.",
            target=Model(str(EMBEDDED / "target"), "int4", 134_479_872, "CC BY-SA 4.0"),
            draft=Model(str(EMBEDDED / "draft"), "int4", 11_796_480, "CC BY-SA 4.0"),
            block=EMBEDDED / "block",
            examples=_EMBEDDED_EXAMPLES,
        ),
        _dolly("3b", _PYTHIA["160m"]),
        _dolly("7b", _PYTHIA["410m"]),
        _dolly("12b", _DOLLY["3b"]),
        Pair(
            name="qwen2.5-coder-1.5b",
            title="Qwen2.5-Coder 1.5B Instruct, draft 0.5B",
            note="Qwen’s model for code, of 2024, in its own chat format. Its answers can be "
            "wrong.",
            target=_QWEN_CODER["1.5b"],
            draft=_QWEN_CODER["0.5b"],
            examples=_CODE_EXAMPLES,
        ),
    )
}


def folder_suffix(weights: Weights) -> str:
    """How the folder of a conversion to that precision ends: a folder of an earlier version that
    ends in `int4` has asymmetric weights.
    """
    return "int4-sym" if weights == "int4" else weights


def find_pair(name: str | Path) -> Pair:
    """The pair of that name, or the one in a folder that holds `target/`, and perhaps `draft/` and
    `block/`.

    Raises:
        UserError: there is no such pair.
    """
    return PAIRS.get(str(name)) or _in_folder(name)


def own_pair(target: str, draft: str | None = None) -> Pair:
    """A pair of the user: each model a name on the hub, a folder with a checkpoint or an IR, or a
    GGUF file.
    """
    for model, value in (("target", target), ("draft", draft)):
        if value is not None and not value.strip():
            remedy = "name a model on the hub, a folder or a GGUF file"
            raise UserError(model, value, remedy)
    last = [_last_part(source.split("@")[0]) for source in (target, draft or "")]
    return Pair(
        name=_own_name(last[0]),
        title=f"{last[0]}, {f'draft {last[1]}' if draft else 'without a draft'}",
        note="Your own pair." if draft else "Your own model.",
        target=Model(target),
        draft=Model(draft) if draft else None,
        examples=_EXAMPLES,
    )


def _in_folder(name: str | Path) -> Pair:
    """A pair in a user's folder. The name is arbitrary text, which may be no valid path."""
    try:
        folder = Path(name)
        found = (folder / "target").is_dir()
    except (OSError, ValueError):
        found = False
    if not found:
        choices = f"choose {', '.join(PAIRS)}, or a folder that holds target/, perhaps draft/"
        raise UserError("pair", str(name), choices)
    draft, block = folder / "draft", folder / "block"
    pair = own_pair(str(folder / "target"), str(draft) if draft.is_dir() else None)
    name = _own_name(_last_part(folder))
    return replace(
        pair,
        name=name,
        title=name,
        note="A pair from your own folder.",
        block=block if block.is_dir() else None,
    )


def _last_part(path: str | Path) -> str:
    """Of a name on the hub or a path, which may be "."."""
    return os.path.basename(os.path.abspath(path))


def _own_name(name: str) -> str:
    """A name that differs from those of the registry, since menus list both."""
    return f"{name} (own)" if name in PAIRS else name

"""A user's request, validated when it is constructed.

Each field is declared once, with a `Setting`: the form, its link, the command line, the page's API
and the chat API follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pipeline.decoding.drafters import DEFAULT_DRAFTER, DRAFTERS, find_drafter
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification import DEFAULT_VERIFIER, VERIFIERS, find_verifier
from pipeline.errors import UserError
from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.text.prompt import check_texts

MAX_DRAFT_LENGTH = 8
DRAFT_LENGTHS = range(MAX_DRAFT_LENGTH + 1)  # 0 is autoregression
MAX_NEW_TOKENS = 2048
MAX_SEED = 2**32 - 1
MAX_STOPS, MAX_STOP_LENGTH = 4, 200  # stop texts, and characters of each


_SAMPLING = "sampling", True  # the group, and that the chat API has it
_K, _AUTO = "Draft length K", {"auto": "Auto: the fastest, as measured"}
_DRAFTERS = {name: spec.title for name, spec in DRAFTERS.items()}
_CACHES = {name: f"{name}: {one.summary}, {one.precision}" for name, one in POLICIES.items()}
_CACHES_DIFFER = "they also differ in precision and kernels; the experiments compare them alike"
_PRECISIONS = {None: "Lossless default", **{name: name for name in get_args(KVPrecision)}}
_VERIFIERS = {name: verifier.title for name, verifier in VERIFIERS.items()}
_VERIFIERS_DIFFER = "used when sampling; typical acceptance changes the text"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field accepts, and how it is presented.

    Attributes:
        name: in errors, as "top-p".
        help: one phrase.
        group: the row of the form that shows it: "drafting", "sampling" or "answer". The fields of
            "question" have places of their own; a field without a group is not in the form.
        chat: whether the chat API has it, by the name of the field.
        low, high: the range of a number, both included.
        offered: the range in the form, where that is narrower.
        step: of a slider; 0 for a box.
        choices: the titles of values to choose from; beside a range, of values that are no numbers.
        label: in the form, where that is not the name.
    """

    name: str
    help: str = ""
    group: str = ""
    chat: bool = False
    low: float = 0
    high: float | None = None
    offered: tuple[float, float] | None = None
    step: float = 0
    choices: Mapping[Any, str] = field(default_factory=dict)
    label: str = ""

    @property
    def limited(self) -> bool:
        """Whether it is a number or a choice."""
        return bool(self.choices) or self.high is not None

    @property
    def title(self) -> str:
        return self.label or f"{self.name[0].upper()}{self.name[1:]}"

    def check(self, value: object, whole: bool) -> None:
        """Raises UserError unless the value is one of the choices, or a number in the range.

        Args:
            whole: whether the number must be an integer.
        """
        if value in [*self.choices]:  # a list, since a user's value may not be hashable
            return
        names = ", ".join(filter(None, self.choices))
        if self.high is None:
            raise UserError(self.name, value, f"choose one of {names}")
        kinds = int if whole else int | float
        number = value if isinstance(value, kinds) and not isinstance(value, bool) else math.nan
        if not self.low <= number <= self.high:  # NaN fails every comparison
            kind = "a whole number" if whole else "a number"
            remedy = f"choose {kind} from {self.low:g} to {self.high:,}"
            remedy += f' or "{names}"' if names else ""
            raise UserError(self.name, value, f"{remedy}; {self.help}" if self.help else remedy)


@dataclass(frozen=True, slots=True)
class Request:
    """One instruction and how to answer it. To add a field, declare it here and use it, as in
    `sampling`.

    Args:
        max_new_tokens: N, the limit of new tokens in a lane, the end key included.
        seed: of each lane's own generator.
        draft_length: K, tokens drafted per round; "auto" selects the fastest in each round.
        kv_cache: the name of a cache policy.
        drafter: the name of a drafter.
        verification: the name of a way to verify drafts; "typical" is lossy.
        kv_precision: of the keys and values; None selects one that keeps speculation lossless.
        stop: texts before the first of which the answer ends.
        logprobs: of how many of the likeliest tokens the log-probabilities are reported, beside
            those of the answer's own; None of no tokens.

    Raises:
        UserError: a value is outside its range.
    """

    instruction: Annotated[str, Setting("instruction", "what Dolly should do", "question")]
    context: Annotated[str, Setting("context", "a passage to do it with", "question")] = ""
    max_new_tokens: Annotated[
        int, Setting("new tokens", "", "answer", low=1, high=MAX_NEW_TOKENS)
    ] = 100
    temperature: Annotated[
        float, Setting("temperature", "0 is greedy", *_SAMPLING, high=5, offered=(0, 2), step=0.05)
    ] = 0.0
    top_p: Annotated[
        float,
        Setting("top-p", "1 keeps every token", *_SAMPLING, high=1, offered=(0.01, 1), step=0.01),
    ] = 1.0
    top_k: Annotated[int, Setting("top-k", "0 keeps every token", *_SAMPLING, high=10**6)] = 0
    seed: Annotated[int, Setting("seed", "used when sampling", *_SAMPLING, high=MAX_SEED)] = 0
    draft_length: Annotated[
        int | Literal["auto"],
        Setting(
            "draft length",
            "tokens guessed before each check; more pay where most are accepted",
            "drafting",
            low=1,
            high=MAX_DRAFT_LENGTH,
            choices=_AUTO,
            label=_K,
        ),
    ] = 4
    kv_cache: Annotated[str, Setting("KV cache", _CACHES_DIFFER, "answer", choices=_CACHES)] = (
        DEFAULT_POLICY
    )
    drafter: Annotated[
        str, Setting("drafter", "what guesses the next tokens", "drafting", choices=_DRAFTERS)
    ] = DEFAULT_DRAFTER
    kv_precision: Annotated[
        KVPrecision | None,
        Setting("KV precision", "fewer bits take less memory", "answer", choices=_PRECISIONS),
    ] = None
    verification: Annotated[
        str, Setting("verification", _VERIFIERS_DIFFER, "drafting", choices=_VERIFIERS)
    ] = DEFAULT_VERIFIER
    stop: Annotated[tuple[str, ...], Setting("stop", chat=True)] = ()
    logprobs: Annotated[int | None, Setting("logprobs", high=20, choices={None: "none"})] = None

    def __post_init__(self) -> None:
        check_texts(self.instruction, self.context)
        object.__setattr__(self, "stop", _stops(self.stop))
        for name, setting in SETTINGS.items():
            if setting.limited:
                setting.check(getattr(self, name), whole=KINDS[name] is not float)
        if self.top_p == 0:
            raise UserError("top-p", self.top_p, "choose more than 0; temperature 0 is greedy")

    def budget(self, prompt_tokens: int, context_length: int | None) -> int:
        """New tokens that fit behind a prompt; a context of None has no limit.

        Raises:
            UserError: none do.
        """
        if context_length is None:
            return self.max_new_tokens
        if prompt_tokens >= context_length:
            remedy = f"shorten it: the context holds {context_length}, the answer included"
            raise UserError("prompt tokens", prompt_tokens, remedy)
        return min(self.max_new_tokens, context_length - prompt_tokens)

    @property
    def form(self) -> dict[str, Any]:
        """Its fields that the form, its link and the page's API have, in their order."""
        return {name: getattr(self, name) for name in FORM_FIELDS}

    @property
    def recorded(self) -> dict[str, Any]:
        """The trace's `request`: the fields, and what the registries know of the methods.

        exact: verification keeps the target's distribution. jointly: it tests the tokens of a
        sampled draft together. at_once: a pair's block draft, or none of its models, drafts.
        """
        verifier, drafter = find_verifier(self.verification), find_drafter(self.drafter)
        return {
            **asdict(self),
            "exact": verifier.exact,
            "jointly": verifier.jointly,
            "at_once": drafter.block_draft or not drafter.draft_model,
        }

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(self.temperature, self.top_k, self.top_p, self.seed)


SETTINGS: dict[str, Setting] = {
    name: kind.__metadata__[0]
    for name, kind in get_type_hints(Request, include_extras=True).items()
}
KINDS = get_type_hints(Request)  # the types of the fields
DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(Request)}
FORM_FIELDS = tuple(name for name, setting in SETTINGS.items() if setting.group)


def _stops(stops: object) -> tuple[str, ...]:
    """Stop texts, of which a file has a list."""
    texts = tuple(stops) if isinstance(stops, list | tuple) else (stops,)
    if len(texts) > MAX_STOPS:
        raise UserError("stop", len(texts), f"choose at most {MAX_STOPS} texts")
    for text in texts:
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_LENGTH:
            raise UserError("stop", text, f"choose texts of 1 to {MAX_STOP_LENGTH} characters")
    return texts

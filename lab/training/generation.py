"""Many texts at once, on the pipeline's own engine, with what the model computed on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lab.batch import OVBatch
from pipeline.decoding.lm import Output
from pipeline.decoding.sampling import SamplingParams, sample_token
from pipeline.models.export import export
from pipeline.models.pairs import Weights, folder_suffix
from pipeline.runtime.model import OVModel
from pipeline.runtime.sequence import OVCausalLM
from pipeline.text.tokenizer import Tokenizer

_EPSILON = 1e-5

Prompt = tuple[int, list[int]]  # its number, and its token ids


@dataclass(frozen=True, slots=True)
class Writing:
    """How a text goes on."""

    longest: int  # tokens of it
    ends: frozenset[int]  # tokens that end it, each its last one
    temperature: float = 0.0  # which takes the most likely token
    top_p: float = 1.0
    top: int = 0  # how many of the most likely tokens are kept at each of its tokens


@dataclass(slots=True)
class Text:
    """A text, while it is written and when it is complete.

    Attributes:
        hidden: float16[n, layers * width] of each forward pass: the hidden states after every
            token but the last written one, each layer's of unit root mean square. None where the
            model returns none.
        top_tokens, top_probs: int32[top] and float16[top] for every written token: the model's
            most likely tokens in its place.
    """

    number: int  # of its prompt
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)  # those written
    hidden: list[NDArray[np.float16]] = field(default_factory=list)
    top_tokens: list[NDArray[np.int32]] = field(default_factory=list)
    top_probs: list[NDArray[np.float16]] = field(default_factory=list)


def write(
    ir: Path,
    prompts: Sequence[Prompt],
    writing: Writing,
    *,
    hidden_layers: Sequence[int] = (),
    seed: int = 0,
    at_once: int = 64,
) -> Iterator[Text]:
    """Writes a text after each prompt, several at once; yields each when it is complete.

    A text depends on its prompt, what all begin with, and the seed only, not on those beside it.

    Args:
        ir: folder of the model and its tokenizer.
        prompts: numbered; each has room for `writing.longest` more tokens in the context.
        hidden_layers: whose hidden states are kept.
        at_once: texts.
    """
    if not prompts:
        return
    model = OVModel(ir, hidden_layers=hidden_layers)
    sequences = [model.sequence(Tokenizer(ir).size) for _ in range(at_once)]
    batch = OVBatch(model.compiled, sequences)
    waiting = iter(tqdm(prompts, desc="texts"))
    texts: list[Text | None] = [None] * at_once
    params = SamplingParams(writing.temperature, top_p=writing.top_p)
    random: dict[int, np.random.Generator] = {}
    # What all prompts begin with is read once. Hidden states are wanted of every token.
    prefix = [] if hidden_layers else shared_prefix([ids for _, ids in prompts])
    for sequence in sequences:
        sequence.forward(prefix, logits_to_keep=0)

    def extend(place: int, output: Output) -> Text | None:
        """Adds the next token to the text at that place; returns the text if it is complete."""
        text = texts[place]
        assert text is not None
        rng = random.setdefault(text.number, np.random.default_rng((seed, text.number)))
        if output.hidden is not None:
            text.hidden.append(unit(output.hidden, len(hidden_layers)))
        if writing.top:
            tokens, probs = _likeliest(output.logits[-1], writing.top)
            text.top_tokens.append(tokens)
            text.top_probs.append(probs)
        text.tokens.append(sample_token(output.logits[-1:], params, rng))
        if len(text.tokens) < writing.longest and text.tokens[-1] not in writing.ends:
            return None
        texts[place] = None
        del random[text.number]
        return text

    def begin(place: int, sequence: OVCausalLM) -> Iterator[Text]:
        """Reads prompts at a free place until a text there has begun and is not complete."""
        while texts[place] is None and (prompt := next(waiting, None)):
            texts[place] = Text(*prompt)
            sequence.rollback(len(prefix))
            rest = prompt[1][len(prefix) :]
            if text := extend(place, sequence.forward(rest, logits_to_keep=1)):
                yield text

    while True:
        for place, sequence in enumerate(sequences):
            yield from begin(place, sequence)
        if not any(texts):
            return
        outputs = batch.forward([text.tokens[-1:] if text else [] for text in texts], at_once)
        for place, output in enumerate(outputs):
            if texts[place] and (text := extend(place, output)):
                yield text


def shared_prefix(prompts: Sequence[Sequence[int]]) -> list[int]:
    """What all prompts begin with, and none of them is no more than."""
    alike = takewhile(lambda tokens: len({*tokens}) == 1, zip(*prompts, strict=False))
    return [first for first, *_ in alike][: min(map(len, prompts)) - 1]


def quantised(checkpoint: Path, work: Path, weights: Weights) -> Path:
    """The folder of the checkpoint's IR; exports it if it is not there."""
    folder = work / "ir" / checkpoint.name / folder_suffix(weights)
    return folder if folder.exists() else export(checkpoint, folder, weights)


def unit(hidden: NDArray[np.float32], layers: int) -> NDArray[np.float16]:
    """Each layer's part of float32[n, layers * width], scaled to a root mean square of 1."""
    parts = hidden.reshape(len(hidden), layers, -1)
    parts = parts / np.sqrt(np.square(parts).mean(-1, keepdims=True) + _EPSILON)
    scaled: NDArray[np.float16] = parts.reshape(hidden.shape).astype(np.float16)
    return scaled


def _likeliest(
    logits: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int32], NDArray[np.float16]]:
    """The `count` most likely tokens of float32[vocab] in order, and their probabilities."""
    # The largest of 64 logits each: at least `count` logits are no smaller than the `count`-th.
    peaks = logits[: len(logits) // 64 * 64].reshape(64, -1).max(0)
    least = np.partition(peaks, -count)[-count] if len(peaks) > count else -np.inf
    best = np.flatnonzero(logits >= least)
    best = best[np.argsort(-logits[best], kind="stable")[:count]]
    weights = np.exp(logits - logits[best[0]])
    return best.astype(np.int32), (weights[best] / weights.sum()).astype(np.float16)

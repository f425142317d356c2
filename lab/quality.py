"""How near a model's distributions are to those of a reference, on the reference's own texts."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lab.prompts import EVERY
from lab.result import Result
from pipeline.decoding.sampling import SamplingParams, probabilities, sample_token

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.model import OVModel
    from pipeline.text.tokenizer import Tokenizer

_UNSHAPED = SamplingParams(temperature=1)  # a model's own distribution
_CHUNK = 4  # tokens of a forward pass
_LEAST = 1e-30  # a probability whose logarithm is finite


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids of a prompt, and of the answer on which quality is measured."""

    prompt: Sequence[int]
    answer: Sequence[int]


@dataclass(frozen=True, slots=True)
class Quality:
    """
    Attributes:
        top1: the share of positions with the same most likely token.
        kl: the mean Kullback-Leibler divergence from the reference, in nats per token.
        positions: that were compared.
    """

    top1: float
    kl: float
    positions: int


def written(
    model: OVModel, prompt: Sequence[int], params: SamplingParams, count: int, tokenizer: Tokenizer
) -> Text:
    """The model's answer to a prompt, of at most `count` tokens."""
    sequence, rng = model.sequence(tokenizer.size), np.random.default_rng(params.seed)
    answer: list[int] = []
    unread = [*prompt]
    while len(answer) < count and (not answer or answer[-1] not in tokenizer.end_ids):
        answer.append(sample_token(sequence.forward(unread, 1).logits, params, rng))
        unread = answer[-1:]
    return Text(prompt, answer)


def distributions(model: OVModel, text: Text, vocab_size: int) -> NDArray[np.float32]:
    """The model's distributions at each token of the answer, float32[answer, vocab]."""
    sequence = model.sequence(vocab_size)
    tokens, first = [*text.prompt, *text.answer[:-1]], len(text.prompt)
    logits = [sequence.forward(tokens[:first], 1).logits]
    chunks = (tokens[at : at + _CHUNK] for at in range(first, len(tokens), _CHUNK))
    logits += [sequence.forward(chunk, len(chunk)).logits for chunk in chunks]
    return probabilities(np.concatenate(logits), _UNSHAPED)


def compared(
    distributions: Sequence[NDArray[np.float32]], reference: Sequence[NDArray[np.float32]]
) -> Quality:
    """Compares distributions, float32[answer, vocab] for each text, with the reference's."""
    same = positions = 0
    divergence = 0.0
    for got, expected in zip(distributions, reference, strict=True):
        same += int((got.argmax(axis=1) == expected.argmax(axis=1)).sum())
        positions += len(expected)
        ratio = np.log(np.maximum(expected, _LEAST)) - np.log(np.maximum(got, _LEAST))
        divergence += float((expected * ratio).sum(dtype=np.float64))
    kl = max(0.0, divergence / positions)  # of equal ones, rounding may take it below
    return Quality(same / positions, kl, positions)


def qualities(
    targets: Mapping[str, OVModel],
    reference: str,
    tokenizer: Tokenizer,
    params: SamplingParams,
    count: int,
) -> Generator[Result, None, dict[str, Quality]]:
    """Compares models on the answers of the one named `reference` to all prompts.

    Args:
        count: tokens of an answer, at most.
    """
    yield Result(doing="the text of the reference")
    model = targets[reference]
    texts = [written(model, tokenizer.ask(*prompt), params, count, tokenizer) for prompt in EVERY]
    expected = [distributions(model, text, tokenizer.size) for text in texts]
    found = {}
    for name, model in targets.items():
        yield Result(doing=f"quality of {name}")
        got = [distributions(model, text, tokenizer.size) for text in texts]
        found[name] = compared(got, expected)
    return found


def agreeing(expected: Text, answer: Text) -> float:
    """The share of the expected answer, from its start, with which the answer agrees."""
    pairs = zip(answer.answer, expected.answer, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same / len(expected.answer)

"""Stage `repetition`: teaches the target not to repeat itself.

A small model that has written a phrase twice is all but certain to go on with it. So the fine-tuned
model answers training instructions greedily, and where an answer loops, the tokens that repeat it
are made unlikely (sequence-level unlikelihood, Welleck et al. 2020, arXiv 1908.04319): a loss of
-log(1 - p) on each, beside the usual loss on Dolly's records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.functional import cross_entropy, logsigmoid

from lab.training import packing, target
from lab.training.answers import instructions
from lab.training.command import Command
from lab.training.files import add_line, read_lines
from lab.training.fit import fit
from lab.training.generation import Writing, quantised, write
from lab.training.packing import IGNORED, Batch, Example
from lab.training.quantisation import round_weights
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.repetition import repeated

ANSWERS = "tuned-answers.jsonl"
_UNWANTED = -1000  # minus a token: a target to make unlikely
_LONGEST_PERIOD, _LEAST_REPEATED = 50, 8  # tokens
_MOST = 24  # tokens of a repetition that are made unlikely, the first ones
_DIGIT = -1


def main(command: Command) -> None:
    """Trains WORK/tuned a little further and writes WORK/target, whose weights are what INT4 leaves
    of them.
    """
    recipe, source = command.recipe, command.work / target.TUNED
    tokenizer, model = target.load_tokenizer(source), target.load_model(source)
    prompts = instructions(tokenizer, command)[: recipe.asked]
    written = answer_all(source, command, prompts)
    prefix = tokenizer.shared_prefix
    digits = frozenset(tokenizer.vocab[str(digit)] for digit in range(10))
    starts = [loop_start(answer, digits) for _, answer in written]
    looping = [
        unwanted(len(prefix), *pair, start, digits)
        for pair, start in zip(written, starts, strict=True)
        if start is not None
    ]
    wanted = target.dolly_examples(tokenizer, target.lessons(command), recipe)
    phase = recipe.repetition

    def epoch(number: int) -> Iterator[Batch]:
        """Every answer that loops, among three times as many records."""
        seed = recipe.seed, number
        chosen = Random(str(seed)).sample(wanted, min(len(wanted), 3 * len(looping)))
        return packing.pack([*looping, *chosen], prefix, phase.pack, phase.rows, seed)

    print(f"{len(looping)} of {len(written)} answers loop")
    if looping:
        shaping = recipe.shaping("target", "repetition", "answers")
        fit(model, epoch, loss, phase, command.work, shaping)
    if phase.int4_group:
        round_weights(model, phase.int4_group)
    target.save_model(model, source, command.work / target.TARGET)


def answer_all(
    checkpoint: Path, command: Command, prompts: Sequence[list[int]]
) -> list[tuple[list[int], list[int]]]:
    """Prompts and the greedy answers to them of a checkpoint, quantised as it is shipped; kept in
    `ANSWERS` as they come.
    """
    kept, recipe = command.work / ANSWERS, command.recipe
    done = {number: (prompt, answer) for number, prompt, answer in read_lines(kept)}
    missing = [prompt for prompt in enumerate(prompts) if prompt[0] not in done]
    folder = quantised(checkpoint, command.work, recipe.weights)
    writing = Writing(recipe.answers.longest, Tokenizer(folder).end_ids)
    for text in write(folder, missing, writing):
        done[text.number] = text.prompt, text.tokens
        add_line(kept, [text.number, text.prompt, text.tokens])
    return [done[number] for number in range(len(prompts))]


def loop_start(answer: Sequence[int], digits: frozenset[int]) -> int | None:
    """Where an answer begins to repeat itself for good: its last tokens are one sequence at least
    three times. None if they are not. All digits count as one: a list that counts may loop.
    """
    tokens = [_DIGIT if token in digits else token for token in answer]
    for period in range(1, _LONGEST_PERIOD + 1):
        count = repeated(tokens, period)
        if count >= max(2 * period, _LEAST_REPEATED):
            return len(tokens) - count
    return None


def unwanted(
    prefix: int, prompt: Sequence[int], answer: Sequence[int], start: int, digits: frozenset[int]
) -> Example:
    """An example in which an answer's tokens from `start` on are to become unlikely."""
    repeating = answer[start : start + _MOST]
    plain = packing.example(prefix, prompt, answer[: start + _MOST])
    targets = [IGNORED] * (len(plain.targets) - len(repeating))
    targets += [IGNORED if token in digits else _UNWANTED - token for token in repeating]
    return Example(plain.tokens, targets)


def loss(model: Any, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the wanted tokens plus mean -log(1 - p) of the unwanted, in nats."""
    logits, targets = target.packed_logits(model, batch)
    logits = logits.float()
    wanted = targets >= 0
    total = logits.new_zeros(())
    if wanted.any():
        total = total + cross_entropy(logits[wanted], targets[wanted])
    if not wanted.all():
        rows, tokens = logits[~wanted], (_UNWANTED - targets[~wanted])[:, None]
        chosen = rows.gather(1, tokens)
        others = rows.scatter(1, tokens, -torch.inf).logsumexp(1, keepdim=True)
        total = total - logsigmoid(others - chosen).mean()  # 1 - p = sigmoid(others - chosen)
    return total

"""Stage `repetition`: teaches the target not to repeat itself.

A small model finds a sentence more likely each time that it reads it again, so that a greedy text
that has said something twice goes on with it. As in DITTO (Xu et al. 2022, arXiv 2206.02369) the
model reads sentences of its own answers several times over, and learns to find each repetition half
as likely as the one before. Beside them stand, with the usual loss, its own answers that do not
loop, which keep all else as it is, and our own records, which it is to know by heart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from lab.training import packing, target
from lab.training.answers import instructions
from lab.training.command import Command
from lab.training.files import add_line, read_lines
from lab.training.fit import fit
from lab.training.generation import Text, Writing, quantised, write
from lab.training.packing import IGNORED, Batch, Example
from lab.training.quantisation import round_weights
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.repetition import repeats

ANSWERS = "tuned-answers.jsonl"
_SHORTEST = 24  # tokens of an answer that is learnt from
_SENTENCE = range(5, 33)  # tokens of a sentence that is repeated
_REPEATED = 100  # tokens of its repetitions, or more
_LESS = 0.5  # a repetition's share of the probability of the one before
_TINY = 1e-6
_OWN_TIMES = 2  # that one of our own records is read, while each answer is read once
_ENDS = re.compile(r"(?<=[.!?])(?= )|(?<=\n)")  # of a sentence, or of a line


def main(command: Command) -> None:
    """Trains WORK/tuned a little further and writes WORK/target, whose weights are what INT4 leaves
    of them.
    """
    recipe, source = command.recipe, command.work / target.TUNED
    tokenizer, model = target.load_tokenizer(source), target.load_model(source)
    prefix, phase = tokenizer.shared_prefix, recipe.repetition
    own = target.dolly_examples(tokenizer, target.own_records(command) * _OWN_TIMES, recipe)

    def epoch(number: int) -> Iterator[Batch]:
        """Every good answer, with a sentence of two in three repeated, and our records."""
        random = Random(f"{recipe.seed} {number}")
        good = [text for text in answer_all(source, command) if is_good(text, tokenizer)]
        print(f"{len(good)} of {recipe.asked} answers are long enough, end, and do not loop")
        answers = [packing.example(len(prefix), text.prompt, text.tokens) for text in good]
        chosen = random.sample(good, 2 * len(good) // 3)
        repeated = [repetition(text, tokenizer, random) for text in chosen]
        examples = [*answers, *filter(None, repeated), *own]
        yield from packing.pack(examples, prefix, phase.pack, phase.rows, (recipe.seed, number))

    shaping = recipe.shaping("target", "repetition", "answers")
    fit(model, epoch, loss, phase, command.work, shaping)
    if phase.int4_group:
        round_weights(model, phase.int4_group)
    target.save_model(model, source, command.work / target.TARGET)


def answer_all(checkpoint: Path, command: Command) -> list[Text]:
    """The greedy answers of a checkpoint, quantised as it is shipped, to the first instructions;
    kept in `ANSWERS` as they come.
    """
    kept, recipe = command.work / ANSWERS, command.recipe
    done = {number: Text(number, prompt, tokens) for number, prompt, tokens in read_lines(kept)}
    folder = quantised(checkpoint, command.work, recipe.weights)
    tokenizer = Tokenizer(folder)
    prompts = enumerate(instructions(tokenizer, command)[: recipe.asked])
    missing = [prompt for prompt in prompts if prompt[0] not in done]
    for text in write(folder, missing, Writing(recipe.longest_answer, tokenizer.end_ids)):
        done[text.number] = text
        add_line(kept, [text.number, text.prompt, text.tokens])
    return [done[number] for number in sorted(done)]


def is_good(text: Text, tokenizer: Tokenizer) -> bool:
    """Whether an answer has ended, is long enough, and does not loop."""
    *body, last = text.tokens
    ended = last in tokenizer.end_ids
    return ended and len(body) >= _SHORTEST and not repeats(body, tokenizer.decode(body).strip())


def repetition(text: Text, tokenizer: Tokenizer, random: Random) -> Example | None:
    """An answer up to one of its sentences, drawn at random, which then is repeated; None if that
    sentence is too short or too long.

    The targets of the first time are its tokens; of a later time, minus its length.
    """
    parts = _ENDS.split(tokenizer.decode(text.tokens[:-1]).strip())
    place = random.randrange(len(parts))
    sentence = parts[place]
    if not sentence.startswith(" ") and not sentence.endswith("\n"):
        sentence = f"{sentence}\n" if place else f" {sentence}"  # the last line, the first sentence
    before, tokens = tokenizer.encode("".join(parts[:place])), tokenizer.encode(sentence)
    size = len(tokens)
    if size not in _SENTENCE:
        return None
    start = [*text.prompt[len(tokenizer.shared_prefix) :], *before]
    times = max(3, -(-_REPEATED // size))
    targets = [IGNORED] * (len(start) - 1) + tokens + [-size] * size * (times - 1)
    return Example([*start, *tokens * times][:-1], targets)


def loss(model: Any, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the wanted tokens, plus mean -log(1 - |p - p'/2|) of the repeated ones,
    where the time before was given the probability p', in nats.
    """
    logits, targets = target.packed_logits(model, batch)
    logits = logits.float()
    wanted = targets >= 0
    total = logits.new_zeros(())
    if wanted.any():
        total = total + cross_entropy(logits[wanted], targets[wanted])
    if not wanted.all():
        following = batch.tokens.roll(-1, 1)[batch.targets != IGNORED]
        # After the last token of an example stands another one, so its token is the one before's.
        places = torch.arange(len(targets), device=targets.device)
        before = torch.where(wanted, places, places + targets)
        tokens = torch.where(wanted, targets, following[before])
        probs = logits.softmax(-1).gather(1, tokens[:, None])[:, 0]
        gap = probs - _LESS * probs.detach()[before]
        total = total - (1 - gap[~wanted].abs()).clamp_min(_TINY).log().mean()
    return total

"""What the target writes: its answers and its probabilities, kept for the draft to learn from.

`python -m training.smol.answers` answers Dolly's and OpenAssistant's training instructions,
greedily and sampled, and keeps the target's likeliest tokens at every position: distilling then
needs no target. Answers are kept as they come, so that an interrupted run continues.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.text.prompt import END_KEY
from training import corpus, packing
from training.files import replacing
from training.smol import target
from training.smol.command import Command, run
from training.smol.fit import best_device, computes_in_bfloat16
from training.smol.quantisation import Int4Training
from training.smol.recipe import Answers, Recipe

ANSWERS, TABLE = "answers.jsonl", "answers.pt"
Pair = tuple[list[int], list[int]]  # the ids of a prompt and of the answer to it


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Answers and, for every token of every answer, the target's likeliest tokens there.

    Attributes:
        examples: their targets are rows of `tokens` and `probs`.
        tokens: int32[rows, top].
        probs: float16[rows, top], of the whole vocabulary: a row sums to at most one.
    """

    examples: list[packing.Example]
    tokens: torch.Tensor
    probs: torch.Tensor


def main(command: Command) -> None:
    """Writes WORK/answers.jsonl, then WORK/answers.pt."""
    recipe, folder = command.recipe, command.work / target.TARGET
    tokenizer, model = target.load_tokenizer(folder), target.load_model(folder)
    # The teacher is what will be shipped: the target in INT4.
    Int4Training(model, recipe.target.int4_group).quantise()
    device = best_device()
    if computes_in_bfloat16(device):
        model = model.to(torch.bfloat16)
    model = model.to(device).eval()
    torch.manual_seed(recipe.seed)
    prompts = instructions(tokenizer, command.data, recipe)
    end = tokenizer.token_to_id(END_KEY)
    kept = command.work / ANSWERS
    done = _read(kept)
    for batch in tqdm(_batches(prompts, recipe.answers), desc="answers"):
        key = (batch.sampled, batch.number)
        if key not in done:
            done[key] = write_answers(model, batch.prompts, end, recipe.answers, batch.sampled)
            with kept.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([*key, done[key]]) + "\n")
    pairs = [pair for answers in done.values() for pair in answers]
    table = make_table(model, pairs, packing.shared_prefix(tokenizer), recipe)
    state = {
        "configuration": configuration(recipe),
        "examples": [(example.tokens, example.targets) for example in table.examples],
        "tokens": table.tokens,
        "probs": table.probs,
    }
    with replacing(command.work / TABLE) as path:
        torch.save(state, path)
    print(f"{len(pairs)} answers, {len(table.tokens)} tokens, in {command.work / TABLE}")


def instructions(tokenizer: Any, data: Path, recipe: Recipe) -> list[list[int]]:
    """The prompts to answer: Dolly's and OpenAssistant's, shuffled, short enough."""
    records = corpus.training_records(data) + corpus.oasst(data)
    Random(recipe.seed).shuffle(records)
    room = recipe.draft_phase.pack - recipe.answers.longest
    prompts = (packing.prompt_ids(tokenizer, record) for record in records)
    short = [prompt for prompt in prompts if len(prompt) <= room]
    return short[: recipe.answers.instructions or None]


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
    sampled: int  # 0 is greedy
    number: int
    prompts: list[list[int]]


def _batches(prompts: Sequence[list[int]], answers: Answers) -> Iterator[_Batch]:
    """Prompts of like length together, greedily first: padding costs as much as answering."""
    ordered = sorted(prompts, key=len)
    for sampled in range(1 + answers.samples):
        for number, at in enumerate(range(0, len(ordered), answers.batch)):
            yield _Batch(sampled, number, ordered[at : at + answers.batch])


def write_answers(
    model: Any, prompts: Sequence[list[int]], end: int, answers: Answers, sampled: int
) -> list[Pair]:
    """The target's answer to each prompt: up to and with the end key, or cut at the longest."""
    how: dict[str, Any] = {"do_sample": False}
    if sampled:
        how = {"do_sample": True, "temperature": answers.temperature, "top_p": answers.top_p}
        how["top_k"] = 0
    width = max(map(len, prompts))
    rows = [[end] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    with torch.inference_mode():
        made = model.generate(
            input_ids=torch.tensor(rows, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=answers.longest,
            eos_token_id=end,
            pad_token_id=end,
            **how,
        )
    written = made[:, width:].tolist()
    cut = [ids[: ids.index(end) + 1] if end in ids else ids for ids in written]
    return list(zip(prompts, cut, strict=True))


def make_table(model: Any, pairs: Sequence[Pair], prefix: Sequence[int], recipe: Recipe) -> Table:
    """The target's probabilities over its answers."""
    examples: list[packing.Example] = []
    count = 0
    for prompt, answer in pairs:
        plain = packing.example(len(prefix), prompt, answer)
        silent = (packing.IGNORED,) * (len(plain.targets) - len(answer))
        rows = range(count, count := count + len(answer))
        examples.append(packing.Example(plain.tokens, (*silent, *rows)))
    tokens = torch.zeros(count, recipe.answers.top, dtype=torch.int32)
    probs = torch.zeros(count, recipe.answers.top, dtype=torch.float16)
    phase = recipe.draft_phase
    for batch in tqdm(packing.pack(examples, prefix, phase.pack, phase.rows, 0), desc="table"):
        with torch.inference_mode():
            logits, rows_of = target.packed_logits(model, batch.to(model.device))
            best = logits.float().softmax(-1).topk(recipe.answers.top)
        tokens[rows_of.cpu()] = best.indices.int().cpu()
        probs[rows_of.cpu()] = best.values.half().cpu()
    return Table(examples, tokens, probs)


def load_table(command: Command) -> Table:
    """What `main` kept; raises UserError if it is not there or of another recipe."""
    path = command.work / TABLE
    if not path.exists():
        raise UserError(
            "answers", str(path), "are not there; run python -m training.smol.answers first"
        )
    state = torch.load(path, map_location="cpu", weights_only=True)
    if state["configuration"] != configuration(command.recipe):
        remedy = "were made with another recipe; run python -m training.smol.answers again"
        raise UserError("answers", str(path), remedy)
    examples = [packing.Example(tuple(t), tuple(r)) for t, r in state["examples"]]
    return Table(examples, state["tokens"], state["probs"])


def configuration(recipe: Recipe) -> str:
    """All of the recipe that shapes the table, as text."""
    parts = dataclasses.asdict(recipe)
    return target.fingerprint(recipe) + json.dumps([parts["answers"], parts["draft_phase"]["pack"]])


def _read(path: Path) -> dict[tuple[int, int], list[Pair]]:
    """The batches answered so far; a last line that an interruption cut short is taken off."""
    done: dict[tuple[int, int], list[Pair]] = {}
    if not path.is_file():
        return done
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    for line in whole.splitlines():
        sampled, number, pairs = json.loads(line)
        done[sampled, number] = [(prompt, answer) for prompt, answer in pairs]
    return done


if __name__ == "__main__":
    run(main, __doc__)

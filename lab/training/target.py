"""The target: all of the base fine-tuned on Dolly's instructions. `python -m lab.training.target`

As Databricks made Dolly v2 of Pythia: every category, with contexts, the loss on the response only.
The responses are a larger model's where it has answered (`lab.training.teacher`), else Dolly's own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from lab.training import packing
from lab.training.base import BASE
from lab.training.command import Command, run
from lab.training.corpus import Record
from lab.training.files import replacing_folder
from lab.training.fit import fit
from lab.training.lessons import lessons
from lab.training.packing import IGNORED, Batch
from lab.training.recipe import Recipe
from pipeline.errors import UserError
from pipeline.models.json_file import read_json
from pipeline.text.prompt import END_KEY
from pipeline.text.tokenizer import Tokenizer

TUNED, TARGET = "tuned", "target"
_LATER = {"repetition", "instructions", "answers", "draft", "draft_phase", "block", "block_phase"}


def main(command: Command) -> None:
    """Fine-tunes WORK/base and writes WORK/tuned, a checkpoint of transformers."""
    recipe, source = command.recipe, command.work / BASE
    tokenizer, model = load_tokenizer(source), load_model(source)
    records = lessons(command)
    examples = dolly_examples(tokenizer, records, recipe)
    prefix = tokenizer.shared_prefix

    def epoch(number: int) -> Iterator[Batch]:
        order = recipe.seed * 100_000 + number
        return packing.pack(examples, prefix, recipe.target.pack, recipe.target.rows, order)

    fit(
        model,
        epoch,
        next_token_loss,
        recipe.target,
        decay=recipe.weight_decay,
        folder=command.work,
        configuration=fingerprint(recipe),
    )
    save_model(model, source, command.work / TUNED)
    print(f"{len(examples)} of {len(records)} records; the model is in {command.work / TUNED}")


def dolly_examples(
    tokenizer: Tokenizer, records: list[Record], recipe: Recipe
) -> list[packing.Example]:
    """Those records that are short enough, with the loss on their response, which ends as Dolly was
    taught to end it.
    """
    prefix = len(tokenizer.shared_prefix)
    examples = []
    for record in records:
        prompt = tokenizer.ask(record.instruction, record.context)
        response = tokenizer.encode(f"{record.response}\n\n{END_KEY}")
        if len(prompt) + len(response) <= recipe.longest and len(response) <= recipe.longest_answer:
            examples.append(packing.example(prefix, prompt, response))
    return examples


def next_token_loss(model: Any, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the next token, in nats, where there is a target."""
    logits, targets = packed_logits(model, batch)
    return cross_entropy(logits.float(), targets)


def packed_logits(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [n, vocab] at the n positions that have a target, and the targets, int64[n].

    The head, a fifth of this model's arithmetic, runs nowhere else.
    """
    hidden = model.base_model(
        input_ids=batch.tokens,
        attention_mask=batch.mask(),
        position_ids=batch.positions,
        use_cache=False,
    ).last_hidden_state
    wanted = batch.targets != IGNORED
    return model.get_output_embeddings()(hidden[wanted]), batch.targets[wanted]


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a stage's folder; raises UserError if that stage has not run."""
    _require(folder)
    return Tokenizer(folder)


def load_model(folder: Path) -> Any:
    """The checkpoint of a stage's folder, in float32."""
    from transformers import AutoModelForCausalLM

    _require(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def save_model(model: Any, like: Path, out: Path) -> None:
    """A checkpoint with the tokenizer of the folder `like`."""
    with replacing_folder(out) as folder:
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (like / name).is_file():
                (folder / name).write_bytes((like / name).read_bytes())


def fingerprint(recipe: Recipe, *later: str) -> str:
    """All of the recipe that shapes the fine-tuned model, and those `later` parts, as text."""
    parts = dataclasses.asdict(recipe)
    kept = set(parts) - _LATER | set(later)
    return json.dumps({name: part for name, part in parts.items() if name in kept})


def read_layers(folder: Path) -> int:
    """The number of decoder layers of a checkpoint."""
    _require(folder)
    return int(read_json(folder / "config.json")["num_hidden_layers"])


def digest(folder: Path) -> str:
    """Of the weights of an IR."""
    with (folder / "openvino_model.bin").open("rb") as weights:
        return hashlib.file_digest(weights, "sha256").hexdigest()


def _require(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        stage = {TUNED: "target", TARGET: "repetition"}.get(folder.name, folder.name)
        remedy = f"is not there; run python -m training.{stage} first"
        raise UserError("checkpoint", str(folder), remedy)


if __name__ == "__main__":
    run(main, __doc__)

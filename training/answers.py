"""What the target writes: its answers and its probabilities, kept for the draft to learn from.

`python -m training.answers` makes the table once; distilling then needs no target.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from random import Random

import torch
from tokenizers import Tokenizer
from tqdm import tqdm
from transformers import GPTNeoXForCausalLM, PreTrainedModel

from pipeline.errors import UserError
from pipeline.text.prompt import END_KEY
from training import corpus, packing
from training.command import Command, run
from training.fit import best_device
from training.model import new_model, packed_logits
from training.profiles import Answers, Profile
from training.rewording import reword
from training.table import TABLE, make_table, save_table
from training.tokenizer import load_tokenizer
from training.train import WEIGHTS, fingerprint


def write_answers(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    answers: Answers,
    sampled: bool,
) -> list[list[int]]:
    """The target's answer to each prompt: up to and with the end key, or cut at the longest."""
    end, pad = tokenizer.token_to_id(END_KEY), 0
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    written: list[list[int]] = [[] for _ in prompts]
    how = (
        {"do_sample": True, "temperature": answers.temperature, "top_p": answers.top_p, "top_k": 0}
        if sampled
        else {"do_sample": False}
    )
    for at in tqdm(range(0, len(order), answers.batch), desc="sampled" if sampled else "greedy"):
        chosen = order[at : at + answers.batch]
        width = max(len(prompts[index]) for index in chosen)
        rows = [[pad] * (width - len(prompts[i])) + list(prompts[i]) for i in chosen]
        mask = [[0] * (width - len(prompts[i])) + [1] * len(prompts[i]) for i in chosen]
        with torch.inference_mode():
            made = model.generate(
                input_ids=torch.tensor(rows, device=model.device),
                attention_mask=torch.tensor(mask, device=model.device),
                max_new_tokens=answers.longest,
                eos_token_id=end,
                pad_token_id=pad,
                **how,
            )
        for index, ids in zip(chosen, made[:, width:].tolist(), strict=True):
            written[index] = ids[: ids.index(end) + 1] if end in ids else ids
    return written


def configuration(profile: Profile) -> str:
    """All of the profile that shapes the table, as text."""
    return fingerprint(profile) + json.dumps(dataclasses.asdict(profile.answers))


def load_target(command: Command) -> GPTNeoXForCausalLM:
    path = command.work / WEIGHTS
    if not path.exists():
        raise UserError("target", str(path), "is not there; run python -m training.train first")
    model = new_model(command.profile.target, command.profile)
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.to(best_device()).eval()


def main(command: Command) -> None:
    """Answers seen and unseen instructions, greedily and sampled, and keeps the probabilities."""
    profile, tokenizer = command.profile, load_tokenizer(command.work)
    model = load_target(command)
    torch.manual_seed(profile.seed)
    seen = corpus.instructions(command.data, profile.domain, profile.seed)
    others = corpus.unseen(command.data, seen, profile.answers.unseen, profile.seed)
    draw = Random(profile.seed)
    reworded = [
        reword(record, others, draw, foreign=0.2).record
        for _ in range(profile.answers.reworded)
        for record in seen
    ]
    records = seen + reworded + others
    prompts = [packing.prompt_ids(tokenizer, record) for record in records]
    prefix = packing.shared_prefix(tokenizer)
    longest = profile.draft_phase.pack - profile.answers.longest
    prompts = [prompt for prompt in prompts if len(prompt) <= longest]
    pairs: list[tuple[Sequence[int], Sequence[int]]] = []
    for sampled in (False, *[True] * profile.answers.samples):
        answers = write_answers(model, tokenizer, prompts, profile.answers, sampled)
        pairs += zip(prompts, answers, strict=True)
    pack, top = profile.draft_phase.pack, profile.answers.top
    table = make_table(model, packed_logits, pairs, prefix, pack, top)
    save_table(table, command.work, configuration(profile))
    print(f"{len(pairs)} answers, {len(table.tokens)} tokens, in {command.work / TABLE}")


if __name__ == "__main__":
    run(main, __doc__)

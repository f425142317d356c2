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
from transformers import GPTNeoXForCausalLM

from pipeline.errors import UserError
from pipeline.text.prompt import END_KEY
from training import corpus, packing
from training.command import Command, run
from training.files import replacing
from training.fit import best_device
from training.model import new_model, packed_logits
from training.profiles import Answers, Profile
from training.rewording import reword
from training.tokenizer import load_tokenizer
from training.train import WEIGHTS, fingerprint

TABLE = "answers.pt"


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Answers and, for every token of every answer, the target's `top` likeliest tokens there.

    Attributes:
        examples: their targets are rows of `tokens` and `probs`.
        tokens: int32[rows, top].
        probs: float16[rows, top], each row summing to one.
    """

    examples: list[packing.Example]
    tokens: torch.Tensor
    probs: torch.Tensor


def write_answers(
    model: GPTNeoXForCausalLM,
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


def make_table(
    model: GPTNeoXForCausalLM,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    prefix: Sequence[int],
    profile: Profile,
) -> Table:
    """The target's probabilities over its answers, `pairs` of prompt and answer."""
    examples: list[packing.Example] = []
    count = 0
    for prompt, answer in pairs:
        plain = packing.example(len(prefix), prompt, answer)
        answer_start = len(plain.targets) - len(answer)
        rows = range(count, count := count + len(answer))
        silent = (packing.IGNORED,) * answer_start
        examples.append(packing.Example(plain.tokens, (*silent, *rows)))
    top = profile.answers.top
    tokens = torch.zeros(count, top, dtype=torch.int32)
    probs = torch.zeros(count, top, dtype=torch.float16)
    batches = list(packing.pack(examples, prefix, profile.draft_phase.pack, 8, seed=0))
    for batch in tqdm(batches, desc="probabilities"):
        with torch.inference_mode():
            logits, rows_of = packed_logits(model, batch.to(model.device))
            best = logits.float().softmax(-1).topk(top)
        shares = best.values / best.values.sum(-1, keepdim=True)
        tokens[rows_of.cpu()] = best.indices.int().cpu()
        probs[rows_of.cpu()] = shares.half().cpu()
    return Table(examples, tokens, probs)


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
    table = make_table(model, pairs, prefix, profile)
    state = {
        "configuration": configuration(profile),
        "examples": [(example.tokens, example.targets) for example in table.examples],
        "tokens": table.tokens,
        "probs": table.probs,
    }
    with replacing(command.work / TABLE) as path:
        torch.save(state, path)
    print(f"{len(pairs)} answers, {len(table.tokens)} tokens, in {command.work / TABLE}")


if __name__ == "__main__":
    run(main, __doc__)

"""Stage `teacher`: answers of a larger model, which the target is taught.

Qwen2.5-Coder-1.5B-Instruct, from the GGUF file that Qwen publishes (Apache-2.0), answers Dolly's
instructions. Text of one larger model is better than that of many people, and easier to guess,
which is what speculation lives on.
"""

from __future__ import annotations

import re
from random import Random

from lab import corpus
from lab.corpus import Record
from lab.training.base import read_gguf
from lab.training.command import Command
from lab.training.files import add_line, read_lines, replacing_folder
from lab.training.generation import Text, Writing, quantised, write
from lab.training.target import TAUGHT, by_people
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.repetition import repeats

TEACHER = "teacher"
_SYSTEM = (
    "You are Dolly, a knowledgeable and friendly expert. Answer in plain English, correctly and "
    "to the point, in three to five sentences or a short list, without an introduction. Give your "
    "own pick where an opinion is asked for. Use at most 100 words."
)
_LONGEST = 220  # tokens of an answer
_REFUSALS = re.compile(
    r"\bas an? (AI|artificial|language|Dolly)|\b(I'm|I am) (sorry|unable|just)"
    r"|\bI (cannot|can't|don't)|\bAlibaba|\bQwen|\bmy training\b",
    re.IGNORECASE,
)
_FOREIGN = re.compile(r"[^\x00-\u024f\u2010-\u2044\u20ac\u2200-\u22ff\u00b0]")


def main(command: Command) -> None:
    """Writes WORK/taught.jsonl: a line an answer, with the id of Dolly's record."""
    folder = command.work / TEACHER
    if not folder.exists():
        model, tokenizer = read_gguf(command.model, command.recipe.teacher_sha256)
        with replacing_folder(folder) as made:
            model.save_pretrained(made)
            tokenizer.save(str(made / "tokenizer.json"))
    ir = quantised(folder, command.work, "int8")
    tokenizer = Tokenizer(ir)
    end = tokenizer.vocab["<|im_end|>"]
    asked = to_answer(command)
    done = {number for number, _ in read_lines(command.work / TAUGHT)}
    prompts = [
        (number, prompt_ids(tokenizer, record))
        for number, record in asked.items()
        if number not in done
    ]
    room = command.recipe.longest - _LONGEST  # a longer record would not be trained on
    missing = [prompt for prompt in prompts if len(prompt[1]) <= room]
    for text in write(ir, missing, Writing(_LONGEST, frozenset({end}))):
        answer = acceptable(text, tokenizer, end)
        add_line(command.work / TAUGHT, [text.number, answer])


def to_answer(command: Command) -> dict[int, Record]:
    """Dolly's instructions that the teacher answers, by their ids, in a shuffled order."""
    records = corpus.training_records_by_id(command.data)
    numbers = [number for number, record in records.items() if not by_people(record)]
    Random(command.recipe.seed).shuffle(numbers)
    return {number: records[number] for number in numbers[: command.recipe.taught]}


def prompt_ids(tokenizer: Tokenizer, record: Record) -> list[int]:
    """The teacher's prompt, in its chat format."""
    asked = "\n\n".join(filter(None, (record.instruction, record.context)))
    turns = (("system", _SYSTEM), ("user", asked))
    chat = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return tokenizer.encode(f"{chat}<|im_start|>assistant\n")


def acceptable(text: Text, tokenizer: Tokenizer, end: int) -> str:
    """The answer; empty if it did not end, loops, refuses, or is in another script."""
    *tokens, last = text.tokens
    answer = tokenizer.decode(tokens).strip()
    bad = (
        last != end
        or repeats(tokens, answer)
        or _REFUSALS.search(answer)
        or _FOREIGN.search(answer)
    )
    return "" if bad else answer

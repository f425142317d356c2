"""The model card of the pair, from its evaluation. `python -m lab.training.card`

Writes WORK/pair/README.md from WORK/evaluation.json, the marks in WORK/reading.json, and the times
of the stages. A file WORK/missed.md, if there is one, tells why bars were missed. Text only: what a
model wrote is never markup.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.training import bars
from lab.training.block import BLOCK
from lab.training.command import TIMES, Command, run
from lab.training.draft import DRAFT
from lab.training.evaluate import (
    EVALUATION,
    PARTS,
    READING,
    SAMPLED,
    SCORED_TOKENS,
    read_reading,
)
from lab.training.files import replacing
from lab.training.fit import LOSSES
from lab.training.target import TARGET
from pipeline.errors import UserError

MARKS = {
    "right": "to the point and good English",
    "fact": "to the point, wrong in a fact",
    "off": "off the point",
    "garbled": "garbled",
}
MISSED = "missed.md"
_LINE = 96  # characters of a line of text, before it is indented
_SHOWN_CONTEXT = 600  # characters
_STAGES = {
    "base": "Qwen2.5-Coder-0.5B-Instruct from its GGUF file, with Dolly's three added tokens",
    "teacher": "Qwen2.5-Coder-1.5B-Instruct's answers to Dolly's instructions",
    "target": "all weights fine-tuned on those and people's, with INT4 weights in the forward pass",
    "repetition": "its own looping answers made unlikely (unlikelihood, arXiv 1908.04319)",
    "answers": "the target's answers to training instructions, its probabilities and hidden states",
    "draft": "layers of the target over its most frequent tokens, distilled from those",
    "block": "the same layers once more, reading the hidden states, to predict several tokens",
    "export": "OpenVINO IRs",
    "evaluate": "every figure below",
}
_HEADER = """\
---
language: en
license: cc-by-sa-4.0
library_name: openvino
pipeline_tag: text-generation
base_model: Qwen/Qwen2.5-Coder-0.5B-Instruct
base_model_relation: finetune
datasets:
  - databricks/databricks-dolly-15k
  - OpenAssistant/oasst1
tags:
  - openvino
  - speculative-decoding
  - dolly
---
"""
_LICENCE = """\
## Licence and attribution

The weights are released under [CC BY-SA 4.0](https://creativecommons.org/licenses/by-sa/4.0/).
They were made from:

- [Qwen2.5-Coder-0.5B-Instruct](https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF),
  Alibaba Cloud, Apache-2.0; the file of Q4_K_M with the SHA-256
  `{base_sha256}`.
  Changed: fine-tuned, Dolly's three tokens added, a trimmed vocabulary, quantised; the drafts have
  fewer layers and tokens.
- Answers of
  [Qwen2.5-Coder-1.5B-Instruct](https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF),
  Alibaba Cloud, Apache-2.0; the file of Q4_K_M with the SHA-256
  `{teacher_sha256}`.
- [databricks-dolly-15k](https://huggingface.co/datasets/databricks/databricks-dolly-15k),
  Databricks, Inc., parts © Wikipedia editors, CC BY-SA 3.0; English originals as kept by
  github.com/spyysalo/databricks-dolly-translation, citation marks and exact duplicates dropped.
- OpenAssistant Conversations (oasst1), Apache-2.0; English turns, paired, from
  github.com/TurkuNLP/oasst-fi. Instructions only, for the draft.
"""


def main(command: Command) -> None:
    """Writes the card.

    Raises:
        UserError: a part was not measured, a mark is missing or unknown, or a file is damaged.
    """
    figures = _figures(command.work)
    marks = read_marks(command.work / READING, figures["reading"])
    path = command.work / "pair" / "README.md"
    with replacing(path) as temporary:
        temporary.write_text(card(command, figures, marks), encoding="utf-8")
    print(path)


def read_marks(path: Path, answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mark of each answer.

    Raises:
        UserError: one is missing or unknown; a mark of another answer is as good as missing.
    """
    given = {(row["id"], row["answer"]): row["mark"] for row in read_reading(path)}
    marks = [given.get((answer["id"], answer["answer"])) for answer in answers]
    choices = ", ".join(MARKS)
    if missing := marks.count(None):
        remedy = f"are missing in {path.name}; read each answer and mark it {choices}"
        raise UserError("marks", f"{missing} of {len(marks)}", remedy)
    for answer, mark in zip(answers, marks, strict=True):
        if mark not in MARKS:
            raise UserError("mark", f"{mark}", f"choose {choices} for record {answer['id']}")
    return [str(mark) for mark in marks]


def shares(marks: Sequence[str]) -> dict[str, float]:
    """Of the answers, by mark."""
    counts = Counter(marks)
    return {mark: counts[mark] / len(marks) for mark in MARKS}


def card(command: Command, figures: Mapping[str, Any], marks: Sequence[str]) -> str:
    """The whole card, as Markdown."""
    found = bars.bars(figures, shares(marks))
    sections = (
        _HEADER + "\n# Dolly on Qwen2.5-Coder 0.5B",
        _about(command),
        "## How it was made\n\n" + _stages(command.work),
        "## Measured\n\n" + _measured(figures, found),
        _missed(command.work, found),
        "## Limits\n\n" + _limits(shares(marks)),
        "## Held-out answers, not picked\n\n" + _answers(figures["reading"], marks),
        _LICENCE.format_map(dataclasses.asdict(command.recipe)),
    )
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def literal(text: str) -> str:
    """Text that is shown as it is: an indented block, in which Markdown knows no markup. Long
    lines are wrapped; characters that cannot be seen are written as their codes.
    """
    lines = []
    for line in text.replace("\t", "    ").replace("\xa0", " ").splitlines():
        shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
        # Whitespace is kept but for the blank at which a line is wrapped.
        lines += textwrap.wrap(shown, _LINE, replace_whitespace=False) or [""]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 100, break_on_hyphens=False)


def _about(command: Command) -> str:
    recipe = command.recipe
    about = [
        _paragraph(
            """Models for speculative decoding on OpenVINO. The target is
            Qwen2.5-Coder-0.5B-Instruct, fine-tuned on databricks-dolly-15k's instructions in Dolly
            v2's prompt format with its three added tokens; it answers instructions in English, from
            a context if there is one. The drafts propose tokens that the target verifies, one a
            forward pass or a block of them; on their own they are of no use. Speculation changes
            the time and never the text."""
        ),
        "",
        "| | family | layers | width | tokens | weights |",
        "|---|---|---|---|---|---|",
    ]
    for role, weights in (
        (TARGET, recipe.weights),
        (DRAFT, recipe.weights),
        (BLOCK, "int8"),
    ):
        shape = _config(command.work / "pair" / role)
        about.append(
            f"| {role} | {shape['model_type']} | {shape['num_hidden_layers']} | "
            f"{shape['hidden_size']} | {shape['vocab_size']:,} | {weights.upper()} |"
        )
    trained = f"""Trained on Dolly's records of every category, with their contexts, of at most
        {recipe.longest} tokens, the response at most {recipe.longest_answer}. The
        drafts read the target's answers to instructions of Dolly and OpenAssistant, the block draft
        also those to instructions that the base wrote in their manner. None of them
        read what is held out: Dolly's records with `id % 30 == 7`, and
        its other records that ask one of their questions."""
    return "\n".join([*about, "", _paragraph(trained)])


def _config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        remedy = "lacks its config.json; run python -m lab.training.export again"
        raise UserError("model", str(folder), remedy) from None
    return config


def _stages(work: Path) -> str:
    """Each stage with its time, and the loss of those that train."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for row in _csv(work / TIMES):
        seconds[row["stage"]] += float(row["seconds"])
    phases: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _csv(work / LOSSES):
        phases[row["phase"]].append(row)
    lines = ["| stage | took | |", "|---|---|---|"]
    for stage, what in _STAGES.items():
        took = seconds.get(stage)
        if rows := phases.get(stage):
            first, last = rows[0], rows[-1]
            took = float(last["seconds"])  # without the time in which it was suspended
            what += (
                f"; {int(last['step']):,} steps, {int(last['tokens']):,} positions, loss "
                f"{float(first['loss']):.2f} → {float(last['loss']):.2f}"
            )
        lines.append(f"| {stage} | {_duration(took)} | {what} |")
    note = "Of a stage that trains: as last logged. Positions are all that its passes compute, "
    note += "with prompts and the places in which the block draft predicts."
    lines += ["", *textwrap.wrap(note, 100)]
    return "\n".join(lines)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "not recorded"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table; none if it is not there."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _measured(figures: Mapping[str, Any], found: Sequence[bars.Bar]) -> str:
    answers, language = figures["answers"], figures["language"]
    raced = {"all, greedy, K = 4": answers}
    raced |= {f"without a context, {name}": races for name, races in figures["open"].items()}
    raced |= {f"with a context, {name}": races for name, races in figures["context"].items()}
    lines = [
        "| races | | identical texts | drafts accepted | tokens a target pass | median speedup | "
        "slower |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, races in raced.items():
        speedup = "too short"
        if races["speedup"] is not None:
            low, median, high = races["speedup"]
            speedup = f"{median:.2f} ({low:.2f}–{high:.2f})"
        same, accepted = races["identical"], races["acceptance"]
        lines.append(
            f"| {name} | {races['races']} | {'sampled' if same is None else same} | "
            f"{'none tested' if accepted is None else f'{accepted:.1%}'} | "
            f"{races['tokens_per_run']:.2f} | {speedup} | {races['slower']} |"
        )
    short, usual, long = answers["tokens"]
    sizes, sampling = figures["sizes"], " and ".join(f"{k} {v}" for k, v in SAMPLED.items())
    how = f"""By `python -m lab.training.evaluate`, on held-out records only. Bits per byte are of
        {language["records"]} reference responses ({language["bytes"]:,} bytes of UTF-8) whose
        prompt and response have at most {SCORED_TOKENS} tokens, without the end key but where it
        is named. An answer is greedy and has at most {sizes["answer_tokens"]} tokens, with the end
        key:
        {usual:.0f} in the median, quartiles {short:.0f} and {long:.0f}. It loops if it ends in the
        same 1 to 40 tokens three times or more in a row (8 tokens or more), or if three of its
        lines are the same, numbers and bullets apart. Races without and with a context have at most
        {sizes["race_tokens"]} new tokens; sampled ones have {sampling.replace("_", "-")}. The
        speedup is against the same target's exact autoregressive decoding in the same
        race, prefill apart."""
    return "\n".join(
        [_paragraph(how), "", bars.table(found), "", *lines, "", _paragraph(_machines(figures))]
    )


def _machines(figures: Mapping[str, Any]) -> str:
    """What was measured where."""
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for name in ("language", "answers", "open", "context"):
        of_part = figures[name]
        each = of_part.values() if name in ("open", "context") else [of_part]
        for machine in sorted({machine for one in each for machine in one["machines"]}):
            parts[machine].append(name)
    if len(parts) == 1:
        return f"Machine: {next(iter(parts))}."
    return "Machines: " + "; ".join(f"{m} ({', '.join(names)})" for m, names in parts.items()) + "."


def _missed(work: Path, found: Sequence[bars.Bar]) -> str:
    """The bars that were missed, and why if somebody wrote that down; empty if none was."""
    missed = [f"- {bar.name}: missed by {bar.missed_by}." for bar in found if not bar.reached]
    if not missed:
        return ""
    why = work / MISSED
    reasons = why.read_text(encoding="utf-8").strip() if why.is_file() else ""
    return "\n".join(["## Bars that were missed", "", *missed, "", reasons])


def _limits(shares_: Mapping[str, float]) -> str:
    wrong = shares_["fact"] + shares_["off"] + shares_["garbled"]
    limits = (
        f"It is small. Of the answers below {wrong:.0%} are wrong in a fact or worse: do not rely "
        "on anything it says.",
        "English only. It was trained on single instructions; it has no memory of earlier ones.",
        "Contexts longer than a few hundred tokens are read, but it was not trained on them.",
        "Nothing was done about harmful or biased answers beyond what its data contains.",
        "The draft proposes its own tokens only. Where an answer needs others, or is hard to "
        "guess, speculation can be slower than autoregression.",
    )
    return "\n".join(textwrap.fill(f"- {limit}", 100, subsequent_indent="  ") for limit in limits)


def _answers(answers: Sequence[Mapping[str, Any]], marks: Sequence[str]) -> str:
    found = shares(marks)
    contexts = sum(bool(answer["context"]) for answer in answers)
    how = f"""{len(answers)} held-out instructions, {contexts} with a context, by a fixed seed;
        greedy answers, marked by reading. […] is where an answer was cut at its budget."""
    lines = [_paragraph(how), "", "| mark | answers | share |", "|---|---|---|"]
    lines += [f"| {MARKS[m]} | {marks.count(m)} | {share:.0%} |" for m, share in found.items()]
    for number, (answer, mark) in enumerate(zip(answers, marks, strict=True), start=1):
        lines += ["", f"**{number}. Record {answer['id']}: {MARKS[mark]}**", ""]
        shown = f"> {answer['instruction']}\n"
        if context := answer["context"]:
            rest = len(context) - _SHOWN_CONTEXT
            cut = f" [… {rest:,} characters more]" if rest > 0 else ""
            shown += f"\nContext: {context[:_SHOWN_CONTEXT]}{cut}\n"
        shown += f"\n{answer['answer']}{'' if answer['ended'] else ' […]'}"
        lines.append(literal(shown))
    return "\n".join(lines)


def _figures(work: Path) -> dict[str, Any]:
    """What was measured; raises UserError unless all was."""
    path = work / EVALUATION
    remedy = "run python -m lab.training.evaluate first"
    try:
        figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("evaluation", path.name, f"is not there; {remedy}") from None
    except ValueError:
        raise UserError("evaluation", path.name, f"is damaged; {remedy}") from None
    for part in PARTS:
        if part not in figures:
            raise UserError("evaluation", part, f"was not measured; {remedy}")
    return figures


if __name__ == "__main__":
    run(main, __doc__)

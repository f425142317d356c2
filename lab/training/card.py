"""Stage `card`: the model card of the pair, from its evaluation.

Fills `cards/pair.md` with WORK/evaluation.json, the marks in WORK/reading.json, and the times of
the stages. A file WORK/missed.md, if there is one, says why bars were missed. Text only: what a
model wrote is never markup.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.table import markdown_table
from lab.training import bars
from lab.training.command import TIMES, Command
from lab.training.evaluate import EVALUATION, READING, ROLES, SCORED_TOKENS, read_marks
from lab.training.files import read_json, read_lines, replacing
from lab.training.fit import LOSSES
from pipeline.errors import UserError

CARDS = Path(__file__).with_name("cards")
_OWN = Path(__file__).with_name("own_records.jsonl")
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
    "target": "fine-tuned on those and people's (LoRA), with INT4 weights in the forward pass",
    "repetition": "sentences read again and again, less likely each time (DITTO, arXiv 2206.02369)",
    "answers": "the target's answers to training instructions, its probabilities and hidden states",
    "draft": "layers of the target over its most frequent tokens, distilled from those",
    "block": "the draft model, trained further: reads hidden states, predicts several tokens",
    "export": "OpenVINO IRs",
    "acceptance": "by position, on held-out questions",
    "evaluate": "every figure below",
}


def main(command: Command) -> None:
    """Writes WORK/pair/README.md.

    Raises:
        UserError: nothing was measured, a mark is missing or unknown, or a file is damaged.
    """
    with replacing(command.work / "pair" / "README.md") as path:
        path.write_text(card(command), encoding="utf-8")


def card(command: Command) -> str:
    """The whole card, as Markdown."""
    figures = read_json(command.work / EVALUATION, "run python -m lab.training evaluate first")
    answers = figures["reading"]
    measured = [figures["language"], figures["answers"]]
    measured += [*figures["open"].values(), *figures["context"].values()]
    marks = _marks(command.work / READING, answers)
    counts = Counter(marks)
    shares = {mark: counts[mark] / len(marks) for mark in MARKS}
    found = bars.bars(figures, shares)
    rows = [(MARKS[mark], counts[mark], f"{share:.0%}") for mark, share in shares.items()]
    text = (CARDS / "pair.md").read_text(encoding="utf-8")
    return text.format(
        recipe=command.recipe,
        language=figures["language"],
        sizes=figures["sizes"],
        lengths=figures["answers"]["tokens"],
        scored_tokens=SCORED_TOKENS,
        models=_models(command),
        own=len(read_lines(_OWN)),
        stages=_stages(command.work),
        bars=bars.as_table(found),
        races=_races(figures),
        machines="; ".join(sorted({machine for each in measured for machine in each["machines"]})),
        missed=_missed(command.work, found),
        wrong=1 - shares["right"],
        count=len(answers),
        contexts=sum(bool(answer["context"]) for answer in answers),
        marks=markdown_table(("mark", "answers", "share"), rows),
        answers="\n\n".join(map(_answer, range(1, len(answers) + 1), answers, marks)),
    )


def _marks(path: Path, answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mark of each answer.

    Raises:
        UserError: one is missing or unknown; a mark of another answer is as good as missing.
    """
    given = read_marks(path)
    marks = [given.get((answer["id"], answer["answer"])) for answer in answers]
    choices = ", ".join(MARKS)
    if missing := marks.count(None):
        remedy = f"are missing in {path.name}; read each answer and mark it {choices}"
        raise UserError("marks", f"{missing} of {len(marks)}", remedy)
    for answer, mark in zip(answers, marks, strict=True):
        if mark not in MARKS:
            raise UserError("mark", f"{mark}", f"choose {choices} for record {answer['id']}")
    return [str(mark) for mark in marks]


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


def _answer(number: int, answer: Mapping[str, Any], mark: str) -> str:
    shown = f"> {answer['instruction']}\n"
    if context := answer["context"]:
        rest = len(context) - _SHOWN_CONTEXT
        cut = f" [… {rest:,} characters more]" if rest > 0 else ""
        shown += f"\nContext: {context[:_SHOWN_CONTEXT]}{cut}\n"
    shown += f"\n{answer['answer']}{'' if answer['ended'] else ' […]'}"
    return f"**{number}. Record {answer['id']}: {MARKS[mark]}**\n\n{literal(shown)}"


def _models(command: Command) -> str:
    rows = []
    for role in ROLES:
        remedy = "run python -m lab.training export again"
        shape = read_json(command.work / "pair" / role / "config.json", remedy)
        size = (shape[name] for name in ("model_type", "num_hidden_layers", "hidden_size"))
        weights = "INT8" if role == "block" else command.recipe.weights.upper()
        rows.append([role, *size, f"{shape['vocab_size']:,}", weights])
    return markdown_table(("", "family", "layers", "width", "tokens", "weights"), rows)


def _stages(work: Path) -> str:
    """Each stage with its time, and the loss of those that train."""
    times, losses, rows = read_lines(work / TIMES), read_lines(work / LOSSES), []
    for stage, what in _STAGES.items():
        took = sum(row["seconds"] for row in times if row["stage"] == stage)
        if logged := [row for row in losses if row["phase"] == stage]:
            first, last = logged[0], logged[-1]
            took = last["seconds"]  # without the time in which it was suspended
            what += f"; {last['step']:,} steps, {last['tokens']:,} positions, loss "
            what += f"{first['loss']:.2f} → {last['loss']:.2f}"
        rows.append((stage, f"{took / 60:.0f} min" if took else "not recorded", what))
    return markdown_table(("stage", "took", ""), rows)


def _races(figures: Mapping[str, Any]) -> str:
    raced = {"all, greedy, K = 4": figures["answers"]}
    raced |= {f"without a context, {name}": races for name, races in figures["open"].items()}
    raced |= {f"with a context, {name}": races for name, races in figures["context"].items()}
    rows = []
    for name, races in raced.items():
        speedup = "too short"
        if races["speedup"] is not None:
            low, median, high = races["speedup"]
            speedup = f"{median:.2f} ({low:.2f}–{high:.2f})"
        same, accepted = races["identical"], races["acceptance"]
        accepted = "none tested" if accepted is None else f"{accepted:.1%}"
        row = (name, races["races"], "sampled" if same is None else same, accepted)
        rows.append((*row, f"{races['tokens_per_run']:.2f}", speedup, races["slower"]))
    columns = ("races", "", "identical texts", "drafts accepted", "tokens a target pass")
    return markdown_table((*columns, "median speedup", "slower"), rows)


def _missed(work: Path, found: Sequence[bars.Bar]) -> str:
    """The bars that were missed, and why if somebody wrote that down; empty if none was."""
    missed = [f"- {bar.name}: missed by {bar.missed_by}." for bar in found if not bar.reached]
    why = work / MISSED
    reasons = why.read_text(encoding="utf-8").strip() if why.is_file() else ""
    lines = ["## Bars that were missed", "", *missed, "", reasons, "", ""]
    return "\n".join(lines) if missed else ""

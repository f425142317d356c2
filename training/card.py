"""The model cards and the loss curve, from the figures of an evaluation. Text only."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.fit import LOSSES
from training.profiles import Profile, Shape

_GOALS = (  # what the pair was meant to reach; (figure, goal, whether more is better)
    ("acceptance, greedy, K = 4", 0.75, True),
    ("acceptance, temperature 0.7, top-p 0.92", 0.65, True),
    ("median speedup, greedy, 100 new tokens", 1.6, True),
    ("answers that end by themselves", 0.8, True),
    ("INT8 − f32, bits per byte", 0.01, False),
    ("INT8 top-1 agreement with f32", 0.98, True),
    ("target, MB", 64.0, False),
    ("draft, MB", 6.0, False),
    ("load to first token, s", 3.0, False),
)
_LICENCE = """\
## Licence and attribution

The weights are released under [CC BY-SA 4.0](https://creativecommons.org/licenses/by-sa/4.0/).
They were made from:

- [databricks-dolly-15k](https://huggingface.co/datasets/databricks/databricks-dolly-15k),
  Databricks, Inc., parts © Wikipedia editors, CC BY-SA 3.0; English originals as kept by
  github.com/spyysalo/databricks-dolly-translation, citation marks and exact duplicates dropped.
- OpenAssistant Conversations (oasst1), English turns paired, Apache-2.0; from
  github.com/TurkuNLP/oasst-fi. {oasst}
"""


def goals(figures: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """What was measured, what was meant, and whether it was reached. Unmeasured rows are absent."""
    target, greedy = figures["target"], figures["greedy"]
    measured: dict[str, float] = {
        "acceptance, greedy, K = 4": greedy["acceptance"],
        "acceptance, temperature 0.7, top-p 0.92": figures["sampled"]["acceptance"],
        "median speedup, greedy, 100 new tokens": greedy["speedup_median"],
        "answers that end by themselves": greedy["ends"],
        "target, MB": figures["bytes"]["target"] / 1e6,
        "draft, MB": figures["bytes"]["draft"] / 1e6,
        "load to first token, s": figures["first_token_s"],
    }
    if "f32" in target:
        gap = target["int8"]["bits_per_byte"] - target["f32"]["bits_per_byte"]
        measured["INT8 − f32, bits per byte"] = gap
        measured["INT8 top-1 agreement with f32"] = target["int8"]["top1_agreement"]
    return [
        (name, measured[name], goal, measured[name] >= goal if more else measured[name] <= goal)
        for name, goal, more in _GOALS
        if name in measured
    ]


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables."""
    lines = ["| figure | measured | meant | reached |", "|---|---|---|---|"]
    for name, value, goal, reached in goals(figures):
        lines.append(f"| {name} | {value:.3g} | {goal:g} | {'yes' if reached else 'no'} |")
    lines += ["", "| held out, bits per byte | target | draft |", "|---|---|---|"]
    for precision in figures["target"]:
        pair = (figures[role][precision]["bits_per_byte"] for role in ("target", "draft"))
        lines.append(f"| {precision} | " + " | ".join(f"{value:.3f}" for value in pair) + " |")
    floor = figures["ngram_bits_per_byte"]
    lines.append(f"| 5-gram with back-off on the same records | {floor:.3f} | |")
    lines += [
        "",
        "| top-1 agreement with f32, held out | target | draft |",
        "|---|---|---|",
    ]
    for precision in figures["target"]:
        pair = (figures[role][precision]["top1_agreement"] for role in ("target", "draft"))
        lines.append(f"| {precision} | " + " | ".join(f"{value:.1%}" for value in pair) + " |")
    lines += [
        "",
        "| races, K = 4 | held out, greedy | held out, sampled | trained on, greedy |",
        "|---|---|---|---|",
    ]
    rows = (
        ("races", "races", "{:d}"),
        ("identical texts", "identical", "{:d}"),
        ("acceptance (accepted / tested)", "acceptance", "{:.1%}"),
        ("tokens a target run", "block_efficiency", "{:.2f}"),
        ("median speedup", "speedup_median", "{:.2f}"),
        ("ends by itself", "ends", "{:.0%}"),
        ("ends in a loop", "loops", "{:.0%}"),
        ("median tokens of an answer", "new_tokens_median", "{:.0f}"),
        ("autoregressive step, ms", "target_step_ms", "{:.2f}"),
        ("drafting a round, ms", "draft_round_ms", "{:.2f}"),
        ("verifying a round, ms", "verify_ms", "{:.2f}"),
    )
    for title, key, form in rows:
        kinds = ("greedy", "sampled", "seen_greedy")
        values = " | ".join(form.format(figures[kind][key]) for kind in kinds)
        lines.append(f"| {title} | {values} |")
    seen = figures["seen"]["int8"]["bits_per_byte"]
    lines += ["", f"Bits per byte on records it was trained on: {seen:.3f} (target, INT8)."]
    return "\n".join(lines)


def write(pair: Path, figures: dict[str, Any], profile: Profile) -> None:
    """`README.md` in both model folders, and beside the target its loss curve."""
    losses = pair / LOSSES
    if losses.exists():
        with losses.open(encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        phases = {
            "target": {phase.name for phase in profile.target_phases},
            "draft": {profile.draft_phase.name},
        }
        for role, names in phases.items():
            chosen = [row for row in rows if row["phase"] in names]
            (pair / role / "losses.svg").write_text(curve(_joined(chosen)), encoding="utf-8")
    for role, text in (("target", _target(figures, profile)), ("draft", _draft(figures, profile))):
        (pair / role / "README.md").write_text(text, encoding="utf-8")


def curve(points: Sequence[tuple[float, float]]) -> str:
    """A loss curve, nats over minutes, as a small SVG."""
    width, height, left, base = 640, 240, 44, 210
    longest = max(1.0, points[-1][0])  # a miniature's phases may be over in no time
    highest = max(loss for _, loss in points)
    across, up = (width - left - 10) / longest, (base - 12) / highest
    path = " ".join(f"{left + across * x:.1f},{base - up * y:.1f}" for x, y in points)
    ticks = "".join(
        f'<text x="{left - 6}" y="{base + 4 - (base - 12) * part}" text-anchor="end">'
        f"{highest * part:.1f}</text>"
        for part in (0.0, 0.5, 1.0)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" fill="#666">'
        f'<path d="M{left},10V{base}H{width - 10}" fill="none" stroke="#999"/>{ticks}'
        f'<text x="{left}" y="{height - 10}">loss in nats over {longest / 60:.0f} minutes</text>'
        f'<polyline points="{path}" fill="none" stroke="#0068b5" stroke-width="1.5"/></svg>\n'
    )


def _joined(rows: Sequence[dict[str, str]]) -> list[tuple[float, float]]:
    """Seconds and loss of phases one after another: each starts its clock anew."""
    joined: list[tuple[float, float]] = []
    start, phase = 0.0, None
    for row in rows:
        if row["phase"] != phase:
            start, phase = (joined[-1][0] if joined else 0.0), row["phase"]
        joined.append((start + float(row["seconds"]), float(row["loss"])))
    return joined


def _target(figures: dict[str, Any], profile: Profile) -> str:
    missed = [
        f"- {name}: {value:.3g}, meant {goal:g}."
        for name, value, goal, reached in goals(figures)
        if not reached
    ]
    bits, floor = figures["target"]["int8"]["bits_per_byte"], figures["ngram_bits_per_byte"]
    if bits >= floor:
        missed.append(
            f"- Bits per byte on held-out records: {bits:.3f}, meant to be clearly below the "
            f"5-gram model's {floor:.3f}."
        )
    count = figures.get("garbled")
    garbled = (
        "" if count is None else f": {count} of the {len(figures['answers'])} below, by reading"
    )
    missed_lines = "\n".join(missed)
    return f"""\
# Dolly mini, target

{_about(figures, profile.target, profile)} It was trained from scratch on
{figures["trained_records"]} short, context-free records of databricks-dolly-15k, again and again,
first in their own words and then in others, **until it recited them**. Asked one of those
questions it gives that answer, nearly word for word; **asked anything else it mostly recites an
answer to another question**. It exists so that the race runs offline, on a real trained model of
Dolly's architecture. It is not an assistant: do not rely on anything it says. Training code and
timings: `training/README.md`.

![Training loss](losses.svg)

## Measured

On {figures["environment"]["cpu"]}, {figures["environment"]["cores"]} cores, OpenVINO
{figures["environment"].get("openvino", "")}, by `python -m training.evaluate`. Held out: the
{figures["held_out_records"]} records of Dolly with `id % 30 == 7`, never trained on.

{table(figures)}

## Not reached

{missed_lines}
- Answers to the point: four fifths of the held-out instructions were to get one, in good English.
  It has one by luck only. It mostly gives another question's answer, and where it mixes two of
  them, garble that no draft can guess{garbled}.
  The page's example that it was not taught gets such an answer.

That is what two CPU cores and two hours can teach a model: a few hundred answers, not a language.

The first phase of training read 11 records more, chosen by an earlier version of `corpus.py`:
second answers to a question, and answers to questions that a held-out record asks in the same
words. The held-out records themselves were never read.

## The page's examples

{_shown(figures["chips"])}

## Held-out instructions, the first {len(figures["answers"])}, not picked

{_shown(figures["answers"])}

{_LICENCE.format(oasst="For the tokenizer only.")}"""


def _draft(figures: dict[str, Any], profile: Profile) -> str:
    written = "greedy and sampled" if profile.answers.samples else "greedy"
    reworded = ", also asked in other words," if profile.answers.reworded else ""
    return f"""\
# Dolly mini, draft

{_about(figures, profile.draft, profile)} It was distilled from the target beside it: it read the
target's own {written} answers, to the instructions the target was trained on{reworded}
and to {profile.answers.unseen:,} others of Dolly and OpenAssistant, and learned the target's
probabilities ({profile.answers.top} per position). It proposes tokens for the target to verify; on
its own it is of no use.

![Distillation loss](losses.svg)

## Measured

{table(figures)}

{_LICENCE.format(oasst="Instructions only, and for the tokenizer.")}"""


def _about(figures: dict[str, Any], shape: Shape, profile: Profile) -> str:
    layers = f"{shape.layers} layer{'s' if shape.layers > 1 else ''}"
    return (
        f"A GPT-NeoX of {layers}, width {shape.hidden}, vocabulary {profile.vocab_size:,}, in "
        "Dolly's prompt format with its three added tokens; INT8 weights, OpenVINO IR."
    )


def _shown(answers: Sequence[dict[str, Any]]) -> str:
    """Instructions and answers as they came; indented, so that nothing in them is markup."""
    return "\n\n".join(
        "\n".join(
            "    " + line
            for line in (
                f"> {shown['instruction']}{' (with a context)' if shown['context'] else ''}\n"
                f"{shown['answer']}{'' if shown['ended'] else ' […]'}"
            ).splitlines()
        )
        + ("" if shown["speedup"] is None else f"\n\n{shown['speedup']:.2f}×")
        for shown in answers
    )

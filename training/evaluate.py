"""Every figure of the model cards, from the shipped IRs. `python -m training.evaluate`

Through the product's own engine, on Dolly's held-out records only. Writes `evaluation.json`, prints
a table, and with `--card` writes the cards. The f32 and INT4 rows need the IRs in the work folder
(`python -m training.export`); without them they are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from pipeline.decoding.events import FinishReason
from pipeline.dolly import Dolly
from pipeline.environment import environment
from pipeline.errors import UserError
from pipeline.models.pairs import EMBEDDED, PAIRS
from pipeline.request import Request
from pipeline.runtime.model import OVModel
from pipeline.text.prompt import END_KEY, format_prompt
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.record import Trace
from training import card, corpus
from training.corpus import Record
from training.ngram import NGram
from training.profiles import Profile, find_profile

NEW_TOKENS = 100
DRAFT_LENGTH = 4
SAMPLING = {"temperature": 0.7, "top_p": 0.92}
PRINTED = 40  # held-out answers in the card: the first ones, not picked
_LONGEST_PERIOD, _REPEATS = 24, 3  # tokens; a loop is an ending that repeats itself this often


@dataclass(frozen=True, slots=True)
class Scored:
    """One prompt and reference response as token ids, and the response's bytes."""

    prompt: list[int]
    response: list[int]
    size: int


def encode(tokenizer: Tokenizer, records: Iterable[Record], longest: int) -> list[Scored]:
    """The records that fit into `longest` tokens."""
    encoded = []
    for record in records:
        prompt = tokenizer.encode(format_prompt(record.instruction, record.context))
        response = tokenizer.encode(f"{record.response}\n\n{END_KEY}")
        if len(prompt) + len(response) <= longest:
            encoded.append(Scored(prompt, response, len(record.response.encode())))
    return encoded


def response_logits(model: OVModel, scored: Scored) -> NDArray[np.float32]:
    """The logits that predict each token of the reference response, float32[response, vocab]."""
    sequence = model.sequence()
    sequence.forward(scored.prompt[:-1], logits_to_keep=0)
    fed = [scored.prompt[-1], *scored.response[:-1]]
    pieces = [fed[at : at + 32] for at in range(0, len(fed), 32)]
    return np.concatenate(
        [sequence.forward(piece, logits_to_keep=len(piece)).logits for piece in pieces]
    )


def bits(logits: NDArray[np.float32], tokens: Sequence[int]) -> float:
    """The information in `tokens` under the rows of `logits`, in bits."""
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    chosen = rows[np.arange(len(tokens)), list(tokens)]
    return float((np.log(np.exp(rows).sum(axis=-1)) - chosen).sum() / math.log(2))


def loops(tokens: Sequence[int]) -> bool:
    """Whether the text ends by repeating itself."""
    body = list(tokens)
    for period in range(1, _LONGEST_PERIOD + 1):
        tail = body[-period * _REPEATS :]
        if len(tail) == period * _REPEATS and tail == tail[:period] * _REPEATS:
            return True
    return False


def language(folders: dict[str, Path], held_out: Sequence[Scored]) -> dict[str, Any]:
    """Bits per byte of each model, and how often its likeliest token is the first model's."""
    size = sum(scored.size for scored in held_out)
    reference: list[NDArray[np.int64]] = []
    figures: dict[str, Any] = {}
    for name, folder in folders.items():
        model = OVModel(folder)
        total, agreed, count = 0.0, 0, 0
        for index, scored in enumerate(tqdm(held_out, desc=f"bits per byte, {name}")):
            logits = response_logits(model, scored)
            total += bits(logits, scored.response)
            likeliest = logits.argmax(axis=-1)
            if len(reference) <= index:
                reference.append(likeliest)
            agreed += int((likeliest == reference[index]).sum())
            count += len(likeliest)
        figures[name] = {"bits_per_byte": total / size, "top1_agreement": agreed / count}
    return figures


def ngram_bits_per_byte(
    trained: Sequence[Scored], held_out: Sequence[Scored], vocab_size: int
) -> float:
    model = NGram(((*s.prompt, *s.response) for s in trained), vocab_size)
    total = sum(model.bits(scored.prompt, scored.response) for scored in held_out)
    return total / sum(scored.size for scored in held_out)


def answer(dolly: Dolly, record: Record, **options: Any) -> Trace | None:
    """A race over one record, or None if its prompt leaves no room for the answer."""
    request = Request(
        record.instruction,
        record.context,
        max_new_tokens=NEW_TOKENS,
        draft_length=DRAFT_LENGTH,
        **options,
    )
    room = dolly.context_length - len(dolly.tokenizer.ask(request.instruction, request.context))
    if room < NEW_TOKENS:
        return None
    return dolly.start(request, "race").finish()


def races(dolly: Dolly, records: Sequence[Record], name: str, **options: Any) -> list[Trace]:
    traces = (answer(dolly, record, **options) for record in tqdm(records, desc=f"races, {name}"))
    return [trace for trace in traces if trace is not None]


def summary(traces: Sequence[Trace]) -> dict[str, Any]:
    """What many races have in common; counts are summed before they are divided."""
    lanes = [(trace.autoregressive, trace.speculative) for trace in traces]
    both = [(slow, fast) for slow, fast in lanes if slow and fast]
    speedups = [trace.speedup for trace in traces if trace.speedup]
    quarters = np.quantile(speedups, [0.25, 0.5, 0.75]).tolist()
    steps = [(slow.steps, fast.steps) for slow, fast in both]
    return {
        "races": len(traces),
        "acceptance": sum(f.accepted for _, f in both) / sum(f.tested for _, f in both),
        "block_efficiency": sum(len(f.tokens) for _, f in both) / sum(len(f) for _, f in steps),
        "speedup_median": quarters[1],
        "speedup_quartiles": [quarters[0], quarters[2]],
        "ends": sum(slow.finish is FinishReason.STOP for slow, _ in both) / len(both),
        "loops": sum(loops([t.id for t in slow.tokens]) for slow, _ in both) / len(both),
        "identical": sum(trace.identical is True for trace in traces),
        "new_tokens_median": statistics.median(len(slow.tokens) for slow, _ in both),
        "target_step_ms": 1e3 * statistics.median(s.seconds for a, _ in steps for s in a),
        "draft_round_ms": 1e3 * statistics.median(s.draft_s for _, b in steps for s in b),
        "verify_ms": 1e3 * statistics.median(s.verify_s for _, b in steps for s in b),
    }


def first_token_seconds(pair: Path) -> float:
    """From a fresh interpreter's first import of the engine to the first token; median of 3."""
    code = (
        "import sys, time; start = time.perf_counter()\n"
        "from pipeline.dolly import Dolly\n"
        "from pipeline.request import Request\n"
        "run = Dolly(sys.argv[1]).start(Request('Why is the sky blue?'), 'autoregressive')\n"
        "next(update for update in run if update.tokens)\n"
        "print(time.perf_counter() - start)"
    )
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", code, str(pair.resolve())]
    outs = [subprocess.run(command, cwd=root, capture_output=True, text=True) for _ in range(3)]
    return statistics.median(float(out.stdout) for out in outs)


def printed(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """What was asked and what the target wrote."""
    shown = []
    for trace in traces:
        lane = trace.autoregressive
        assert lane is not None
        shown.append(
            {
                "instruction": trace.request["instruction"],
                "context": trace.request["context"],
                "answer": lane.text.strip(),
                "ended": lane.finish is FinishReason.STOP,
                "speedup": trace.speedup,
            }
        )
    return shown


def evaluate(pair: Path, work: Path | None, data: Path, profile: Profile, raced: int) -> Any:
    """All figures of one pair, as plain JSON."""
    tokenizer = Tokenizer(pair / "target")
    held_out = corpus.held_out(data)
    trained = corpus.instructions(data, profile.domain, profile.seed)
    encoded = encode(tokenizer, held_out, profile.context)
    precisions = ("f32", "int4") if work and (work / "f32").is_dir() else ()
    assert work is not None or not precisions
    figures: dict[str, Any] = {
        "environment": environment(),
        "profile": profile.name,
        "trained_records": len(trained),
        "held_out_records": len(encoded),
        "bytes": {
            role: sum(file.stat().st_size for file in (pair / role).glob("openvino_model.*"))
            for role in ("target", "draft")
        },
        "first_token_s": first_token_seconds(pair),
    }
    # The f32 model comes first: the others' agreement is with it.
    for role in ("target", "draft"):
        folders = {name: work / name / role for name in precisions[:1] if work}
        folders["int8"] = pair / role
        folders |= {name: work / name / role for name in precisions[1:] if work}
        figures[role] = language(folders, encoded)
    seen = encode(tokenizer, trained, profile.context)
    figures["seen"] = language({"int8": pair / "target"}, seen[:200])
    figures["ngram_bits_per_byte"] = ngram_bits_per_byte(seen, encoded, tokenizer.size)

    dolly = Dolly(pair)
    greedy = races(dolly, held_out[:raced], "greedy, held out")
    figures["greedy"] = summary(greedy)
    figures["sampled"] = summary(races(dolly, held_out[:raced], "sampled, held out", **SAMPLING))
    figures["seen_greedy"] = summary(races(dolly, trained[:raced], "greedy, trained on"))
    examples = [
        Record(example.instruction, example.context, "") for example in PAIRS["dolly-mini"].examples
    ]
    figures["chips"] = printed(races(dolly, examples, "chips"))
    figures["answers"] = printed(greedy[:PRINTED])
    return figures


def main() -> None:
    """The command line; exits with 2 and one line on what a user can mend."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", type=Path, default=EMBEDDED)
    parser.add_argument("--profile", default="cpu", help="what the pair was trained with")
    parser.add_argument("--work", type=Path, help="of the training, for the f32 and INT4 rows")
    parser.add_argument("--data", type=Path, default=corpus.DATA)
    parser.add_argument("--races", type=int, default=100, help="held-out records to race over")
    parser.add_argument("--garbled", type=int, help="printed answers that a reader found garbled")
    parser.add_argument("--card", action="store_true", help="write the model cards too")
    given = parser.parse_args()
    try:
        profile = find_profile(given.profile)
        figures = evaluate(given.pair, given.work, given.data, profile, given.races)
        if given.garbled is not None:  # the one figure that no program can tell
            figures["garbled"] = given.garbled
        (given.pair / "evaluation.json").write_text(json.dumps(figures, indent=1) + "\n")
        if given.card:
            card.write(given.pair, figures, profile)
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    print(card.table(figures))


if __name__ == "__main__":
    main()

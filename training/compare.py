"""Which draft wins the race: several against one target. `python -m training.compare`

Tokens per second decide, not acceptance: a better draft that costs more may lose.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pipeline.dolly import Dolly
from training import corpus
from training.evaluate import races, summary


def main() -> None:
    """Races each draft of a work folder over the same prompts and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drafts", nargs="+", help="as in WORK/int8: draft, draft-1x128, ...")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=corpus.DATA)
    parser.add_argument("--races", type=int, default=40)
    given = parser.parse_args()
    # Not on held-out records: those are not for choosing.
    records = corpus.unseen(given.data, [], given.races, seed=1)
    print("| draft | acceptance | tokens a target run | drafting a round, ms | median speedup |")
    print("|---|---|---|---|---|")
    for name in given.drafts:
        with tempfile.TemporaryDirectory() as folder:
            for role, found in (("target", "target"), ("draft", name)):
                (Path(folder) / role).symlink_to((given.work / "int8" / found).resolve())
            figures = summary(races(Dolly(folder), records, name))
        print(
            f"| {name} | {figures['acceptance']:.1%} | {figures['block_efficiency']:.2f} "
            f"| {figures['draft_round_ms']:.2f} | {figures['speedup_median']:.2f} |"
        )


if __name__ == "__main__":
    main()

"""The command `dolly`, which is also `python -m dolly_twice`. It imports nothing of the project."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

_COMMANDS = {  # name: the module that is run, what it does
    "serve": ("app", "serve the page"),
    "ask": ("pipeline", "answer an instruction in the terminal"),
    "convert": ("pipeline.convert", "fetch or convert a model"),
    "lab": ("lab", "list or run the studies"),
}


def main() -> int:
    """Runs a module as `python -m` does; returns the exit status where that does not exit itself:
    2 for no such command.
    """
    name, *arguments = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        print("usage: dolly COMMAND [--help] [...]\n")
        for command, (_, purpose) in _COMMANDS.items():
            print(f"  {command:9}{purpose}")
        return 0
    if name not in _COMMANDS:
        print(f"command: “{name}” — choose from {', '.join(_COMMANDS)}.", file=sys.stderr)
        return 2
    sys.path.insert(0, str(Path(__file__).parent))
    sys.argv[1:] = arguments
    # As the script itself: Ray sends the folder of `sys.argv[0]` to its workers, as it must.
    runpy.run_module(_COMMANDS[name][0], run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

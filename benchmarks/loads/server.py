"""`app.py` in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

import httpx

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; others may use the cores
_PERIOD = 0.05  # seconds between two looks at whether it is ready
_OFFLINE = {
    "HF_ENDPOINT": "http://127.0.0.1:9",  # where nobody listens
    "PYTHONUNBUFFERED": "",  # off, as in most terminals
}


class Server:
    """Starts the program at a free port of this machine, without a network. Closing it kills it.

    Args:
        cache: the folder of converted models; what the process writes to the terminal lies beside
            it.
        flags: of `app.py`.
        cores: the numbers of those it may use; none are all.

    Attributes:
        url: its address.
        pid: of the process.
    """

    def __init__(self, cache: Path, *flags: str, cores: Collection[int] = ()) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = cache.with_suffix(".log")
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        app = [sys.executable, "app.py", "--port", str(port), "--cache-dir", str(cache)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*pinned, *app, *flags],
                cwd=ROOT,
                env=os.environ | _OFFLINE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.pid = self._process.pid  # also where it is pinned, since taskset becomes the program

    def wait_until_open(self) -> None:
        """Waits until the page is served; its models may still load."""
        assert self._process.stdout is not None
        assert any(self.url in line for line in self._process.stdout), self.errors

    def wait_until_ready(self) -> None:
        """Waits until the models are loaded, too."""
        self.wait_until_open()
        deadline = time.monotonic() + PATIENCE
        while httpx.get(f"{self.url}/ready").status_code != httpx.codes.OK:
            assert time.monotonic() < deadline, self.errors
            time.sleep(_PERIOD)

    @property
    def errors(self) -> str:
        """What it wrote to the terminal."""
        return self._log.read_text(encoding="utf-8")

    @property
    def resident_bytes(self) -> int:
        """Of its memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def terminate(self) -> int:
        """Stops it as who hosts it does; returns its exit status."""
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

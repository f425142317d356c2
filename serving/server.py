"""`app.py` in a process of its own, as an operator starts it: for the trial and the tests."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[1]
_PERIOD = 0.05  # seconds between two looks


class Server:
    """The page on this machine.

    Args:
        flags: of `app.py`.
        temporary: a folder, of a short name; None takes the user's. Replicas of servers with
            different ones may have the same cores.

    Attributes:
        url: of the page.
    """

    def __init__(self, *flags: str, temporary: Path | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed on leaving
        self._process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port), *flags],
            cwd=_ROOT,
            env=os.environ | ({"TMPDIR": str(temporary)} if temporary else {}),
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.terminate()
        self._log.close()

    def wait_until_ready(self, timeout: float) -> None:
        """Returns once the models are loaded.

        Raises:
            RuntimeError: the process ended, or the time is over.
        """
        until = time.monotonic() + timeout
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self._log.seek(0)
                raise RuntimeError(f"app.py is not ready: {self._log.read()}")
            time.sleep(_PERIOD)

    def terminate(self, timeout: float = 60.0) -> int:
        """Ends it as who hosts it does; returns its exit status.

        Raises:
            subprocess.TimeoutExpired: it does not end in this time; it is killed then.
        """
        self._process.terminate()
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    @property
    def replicas(self) -> list[int]:
        """The processes of its replicas; empty without."""
        return sorted(
            pid for pid in self.processes if _command(pid).startswith("ray::ServeReplica")
        )

    @property
    def processes(self) -> list[int]:
        """Its own and all that it started and that still run."""
        children: dict[int, list[int]] = {}
        for pid, parent in _parents():
            children.setdefault(parent, []).append(pid)
        found = [self._process.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    @property
    def memory(self) -> dict[str, int]:
        """Resident bytes of the page, of all its replicas together, and of what else it started."""
        page, replicas = self._process.pid, self.replicas
        others = {*self.processes} - {page, *replicas}
        return {
            "page": resident(page),
            "replicas": sum(map(resident, replicas)),
            "processes of Ray": sum(map(resident, others)),
        }

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}ready") as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False


def running(pid: int) -> bool:
    """Whether the process is there and has not ended."""
    return any(pid == each for each, _ in _parents())


def resident(pid: int) -> int:
    """Bytes of a process in memory; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill(pid: int) -> None:
    """Ends a process as a machine without memory does."""
    os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _parents() -> Iterator[tuple[int, int]]:
    """All processes that have not ended, each with its parent."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found = re.match(r"(\d+) \(.*\) (\S) (\d+) ", path.read_text(), re.DOTALL)
        except OSError:
            continue
        if found and found[2] != "Z":
            yield int(found[1]), int(found[3])

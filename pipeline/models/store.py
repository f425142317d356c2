"""The folder of converted models, and how models are fetched into it."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Empty
from typing import Any

from filelock import FileLock, Timeout

from pipeline.errors import UserError
from pipeline.models.export import check_checkpoint, export
from pipeline.models.gguf_file import check_gguf, is_gguf, named_gguf, write_checkpoint
from pipeline.models.hub import Hub
from pipeline.models.pairs import Model, folder_suffix
from pipeline.models.pickled import is_pickled, write_safetensors
from pipeline.progress import Progress

Files = Mapping[str, int]  # bytes of each

_XML, _BIN = "openvino_model.xml", "openvino_model.bin"
_IR_FILES = (_XML, _BIN, "config.json", "generation_config.json", "tokenizer.json")
_WEIGHTS = ".safetensors"
_TOKENIZER_FILES = ("tokenizer_config.json", "chat_template.jinja", "target_ids.json")
_PERIOD = 0.5  # seconds between two checks of the export process, or of another's lock
_ENDS = 10.0  # seconds that the export process may take to end after it has failed
_WAITING = Progress("waiting for another process")


class Store:
    """Finds models, and fetches and converts those that are missing.

    A model is written under a temporary name first, so that an existing one is always complete; and
    by one process at a time, while others that want it wait.

    Args:
        folder: of the converted models; None uses the user's cache folder.
        endpoint: of another hub than the public one.
    """

    def __init__(self, folder: Path | None = None, endpoint: str | None = None) -> None:
        self.root = folder or _default()
        self._hub = Hub(self.root / "hub", endpoint)

    def find(self, model: Model) -> Path | None:
        """The folder of its IR; None if there is none."""
        source = _local(model)
        if self.fixed(model):
            return source
        kept = self._place(model)
        if not (kept / _XML).is_file():
            return None
        return None if source and _newer(source, kept) else kept

    def fixed(self, model: Model) -> bool:
        """Whether it is a folder with an IR, whose weights keep their precision."""
        source = _local(model)
        return source is not None and (source / _XML).is_file()

    def folder(self, model: Model) -> Path:
        """The folder of its IR.

        Raises:
            UserError: it is missing; the remedy is the command that fetches it.
        """
        found = self.find(model)
        if found is None:
            local = _local(model)
            if local and not is_gguf(local) and not _weights_of(local):
                remedy = f"holds neither an {_XML} nor a checkpoint; name another folder"
                raise UserError("model", model.id, remedy)
            get = f"python -m pipeline.convert {model.id} --weights {model.weights}"
            raise UserError("model", model.id, f"is not there yet; get it with: {get}")
        return found

    def obtain(self, model: Model) -> Iterator[Progress]:
        """Fetches the model if it is missing: a published IR if there is one, else a checkpoint,
        which is converted. Closing it cancels the work and deletes partial results.

        Raises:
            UserError: it cannot be fetched or converted.
        """
        if self.find(model):
            return
        try:
            yield from self._obtained_alone(model)
        except OSError as error:
            remedy = f"{error.strerror or error}; make it usable, or choose another --cache-dir"
            raise UserError("file", str(error.filename or self.root), remedy) from None

    def checkpoint(
        self, model: Model, files: Files | None = None
    ) -> Generator[Progress, None, Path]:
        """Fetches a model's checkpoint, unless it is a folder or a GGUF file; returns where it is.

        Args:
            files: all of its repository, if they are known.

        Raises:
            UserError: it cannot be fetched, or cannot be exported.
        """
        if source := _local(model):
            if is_gguf(source):
                check_gguf(source)
            else:
                check_checkpoint(source, model.remote_code)
            return source
        own = files or self._hub.files(model.id)
        wanted = _checkpoint_files(model, own)
        small = {file: size for file, size in wanted.items() if not _has_weights(file)}
        without_weights = yield from self._hub.fetch(model.id, small)
        check_checkpoint(without_weights, model.remote_code, own)
        return (yield from self._hub.fetch(model.id, wanted))

    def _obtained_alone(self, model: Model) -> Iterator[Progress]:
        """Waits for another process that obtains the model, and does so if that one does not."""
        place = self._place(model)
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        # The system releases it with the process. A Task may close this in another thread.
        lock = FileLock(locks / f"{place.name}.lock", thread_local=False)
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_PERIOD)
            except Timeout:
                yield _WAITING
        try:
            if not self.find(model):
                _delete_partial(place)
                yield from self._obtained(model)
        finally:
            lock.release()

    def _obtained(self, model: Model) -> Iterator[Progress]:
        if named_gguf(model.id) and not _local(model):
            raise UserError("model", model.id, "is not there; name a GGUF file")
        own = {} if _local(model) else self._hub.files(model.id)
        if ready := own and self._ready_ir(model, own):
            name, files = ready
            fetched = yield from self._hub.fetch(name, files)
            self._keep(fetched, files, self._place(model))
            return
        source = yield from self.checkpoint(model, own)
        yield from _exported(source, self._place(model), model)

    def _place(self, model: Model) -> Path:
        local = _local(model)
        name = local.name if local else model.id
        path = re.sub(r"[^\w.-]+", "--", name)
        if local:  # several folders or files may have the same name
            path += "-" + sha256(str(local.resolve()).encode()).hexdigest()[:8]
        return self.root / f"{path}--{folder_suffix(model.weights)}"

    def _ready_ir(self, model: Model, own: Files) -> tuple[str, Files] | None:
        """A repository with its IR, and the files to fetch: its own, at whatever weights, or a
        published one at these; None without one.
        """
        candidates = [(model.id, own)]
        name = f"OpenVINO/{model.id.rpartition('/')[2]}-{model.weights}-ov"
        if _XML not in own and "@" not in model.id:  # published IRs are of the main revision
            with suppress(UserError):  # there is no published IR
                candidates.append((name, self._hub.files(name)))
        for name, files in candidates:
            if all(file in files for file in _IR_FILES if file != "generation_config.json"):
                wanted = [f for f in (*_IR_FILES, *_TOKENIZER_FILES) if f in files]
                return name, {file: files[file] for file in wanted}
        return None

    def _keep(self, fetched: Path, files: Iterable[str], place: Path) -> None:
        """Links fetched files into the model's own folder, or copies them where that fails."""
        made = place.with_name(f".{place.name}-{os.getpid()}")
        made.mkdir(parents=True)
        try:
            for name in files:
                real = (fetched / name).resolve()
                try:
                    os.link(real, made / name)
                except OSError:
                    shutil.copyfile(real, made / name)
            made.rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _default() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "dolly-twice"


def _local(model: Model) -> Path | None:
    """The folder or GGUF file that it names, if there is one. The id is arbitrary text, maybe no
    valid path.
    """
    try:
        path = Path(model.id)
        return path if model.id and (path.is_dir() or is_gguf(path)) else None
    except (OSError, ValueError):
        return None


def _checkpoint_files(model: Model, files: Files) -> Files:
    """The files to fetch of a checkpoint. `check_checkpoint` reports those that are missing."""
    weights = [f for f in files if f.endswith(_WEIGHTS) and "/" not in f]
    weights = weights or [f for f in files if is_pickled(f)]
    code = [f for f in files if f.endswith(".py")] if model.remote_code else []
    texts = [f for f in files if f.endswith((".json", ".jinja")) and "/" not in f]
    if "config.json" not in texts:
        raise UserError("model", model.id, "is no model: its repository has no config.json")
    return {file: files[file] for file in (*texts, *code, *weights)}


def _has_weights(name: str) -> bool:
    return name.endswith(_WEIGHTS) or is_pickled(name)


def _weights_of(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if _has_weights(file.name)]


def _newer(source: Path, kept: Path) -> bool:
    """Whether a checkpoint, if there is still one, changed after it was converted."""
    whole = (source / "config.json").is_file()
    files = [source] if is_gguf(source) else _weights_of(source) if whole else []
    last = max((file.stat().st_mtime for file in files), default=0.0)
    return last > (kept / _XML).stat().st_mtime


def _exported(source: Path, out: Path, model: Model) -> Iterator[Progress]:
    """Exports in a separate process, which can be stopped and returns PyTorch's memory."""
    context = multiprocessing.get_context("spawn")
    reports: multiprocessing.Queue[Progress | UserError] = context.Queue()
    path = out.with_name(f".{out.name}.log")
    out.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("w+", errors="replace")
    worker = context.Process(target=_export, args=(reports, path, source, out, model), daemon=True)
    worker.start()
    try:
        with log:
            while worker.is_alive() or not reports.empty():
                try:
                    report = reports.get(timeout=_PERIOD)
                except Empty:
                    continue
                if isinstance(report, UserError):
                    worker.join(_ENDS)  # a kill leaves semaphores, of which Python warns
                    raise report
                yield report
            worker.join()
            if worker.exitcode:
                lines = log.read().strip().splitlines()
                why = lines[-1][:200] if lines else "out of memory, perhaps"
                raise UserError("model", model.id, f"could not be converted ({why})")
    finally:
        worker.kill()
        worker.join()
        path.unlink(missing_ok=True)
        _delete_partial(out)
        _delete_partial(_unpickled(out, model))


def _delete_partial(place: Path) -> None:
    """Deletes what was written of a model that was never completed."""
    for left in place.parent.glob(f".{place.name}-*"):
        shutil.rmtree(left, ignore_errors=True)


def _export(reports: Any, log: Path, source: Path, out: Path, model: Model) -> None:
    """Runs in the export process. The output of libraries goes to the log."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with suppress(OSError):  # Windows keeps a file that is open
        log.unlink()  # both processes still have it open, and a kill leaves nothing
    try:
        if is_gguf(source):
            reports.put(Progress("reading the GGUF file"))
            whole, source = source, out.with_name(f".{out.name}-{os.getpid()}-checkpoint")
            write_checkpoint(whole, source)
        elif not any(source.glob(f"*{_WEIGHTS}")):
            pickled, source = source, _unpickled(out, model)
            write_safetensors(pickled, source, reports.put)
        export(source, out, model.weights, reports.put, model.remote_code)
    except UserError as error:
        reports.put(error)


def _unpickled(out: Path, model: Model) -> Path:
    """Where a checkpoint with pickled weights is kept with safetensors, for all precisions."""
    return out.with_name(f"{out.name.removesuffix(folder_suffix(model.weights))}safetensors")


def _end_with_parent() -> None:
    """Ends this process when the one that started it has ended, be it killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

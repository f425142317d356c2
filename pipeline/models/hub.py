"""The Hugging Face hub: what a repository holds, and fetching it. Knows no models.

`huggingface_hub` is imported here at the top, before any thread starts: it is imported lazily part
by part, the parts import each other, and Gradio imports it too. Two threads that do so at once
find each other's parts half-initialized (ImportError).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Generator, Mapping
from pathlib import Path

from huggingface_hub import HfApi, errors, hf_hub_download

from pipeline.errors import UserError
from pipeline.progress import Progress, in_bytes

_PERIOD = 0.5  # seconds between two looks at how much has come


class Hub:
    """Fetches into a cache of its own, which resumes what was interrupted.

    Args:
        cache: the folder.
        endpoint: another hub than the public one.
    """

    def __init__(self, cache: Path, endpoint: str | None = None) -> None:
        self._cache, self._endpoint = cache, endpoint

    def files(self, name: str) -> dict[str, int]:
        """The bytes of each file of a repository.

        Args:
            name: of the repository, perhaps with `@revision`.

        Raises:
            UserError: there is no such repository, it is gated, or the hub cannot be reached.
        """
        repository, _, revision = name.partition("@")
        try:
            about = HfApi(endpoint=self._endpoint).model_info(
                repository, revision=revision or None, files_metadata=True, timeout=20
            )
        except Exception as error:
            raise _user_error(error, name) from None
        return {file.rfilename: file.size or 0 for file in about.siblings or []}

    def fetch(self, name: str, sizes: Mapping[str, int]) -> Generator[Progress, None, Path]:
        """Fetches the files of those names, as `files` told them; returns their folder. Closing it
        ends with the file under way.

        Raises:
            UserError: as `files`; or the disk is full.
        """
        repository, _, revision = name.partition("@")
        total = sum(sizes.values())
        blobs = self._cache / f"models--{repository.replace('/', '--')}" / "blobs"
        self._require_room(name, total - _bytes_in(blobs))
        failed: list[Exception] = []
        folders: list[Path] = []
        stop = threading.Event()

        def work() -> None:
            try:
                for file in sizes:
                    if stop.is_set():
                        return
                    path = hf_hub_download(
                        repository,
                        file,
                        revision=revision or None,
                        cache_dir=self._cache,
                        endpoint=self._endpoint,
                    )
                    folders.append(Path(path).parents[len(Path(file).parts) - 1])
            except Exception as error:
                failed.append(error)

        worker = threading.Thread(target=work, name="fetch", daemon=True)
        worker.start()
        try:
            while worker.is_alive():
                worker.join(_PERIOD)
                yield Progress("fetching", min(_bytes_in(blobs), total), total, "B")
        finally:
            stop.set()
        if failed:
            raise _user_error(failed[0], name) from None
        return folders[0]

    def _require_room(self, name: str, needed: int) -> None:
        self._cache.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._cache).free
        if needed > free:
            remedy = f"needs {in_bytes(needed)} and {self._cache} has {in_bytes(free)} left"
            raise UserError("disk", name, f"{remedy}; make room, or choose another --cache-dir")


def _bytes_in(folder: Path) -> int:
    """Finished files and those under way."""
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())


def _user_error(error: Exception, name: str) -> UserError:
    """What went wrong, as one line."""
    match error:
        case UserError():
            return error
        case errors.HFValidationError():
            return UserError("model", name, "is neither a folder nor a name on the hub")
        case errors.GatedRepoError():
            remedy = "is gated: accept its terms on its page, then log in with: hf auth login"
        case errors.RevisionNotFoundError():
            remedy = "has no such revision; leave out what follows the @"
        case errors.RepositoryNotFoundError():
            remedy = "is not on the hub, or private; check the name, or log in with: hf auth login"
        case OSError(errno=28):
            remedy = "does not fit on the disk; make room, or choose another --cache-dir"
        case _:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
            remedy = f"cannot be fetched: the hub does not answer ({reason})"
            remedy += "; check the network, or name a folder"
    return UserError("model", name, remedy)

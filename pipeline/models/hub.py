"""Lists and downloads the files of repositories on the Hugging Face Hub.

`huggingface_hub` is imported at the top, before any thread starts. It loads its modules lazily,
they import each other, and Gradio imports it too; two threads that do so at the same time fail with
an ImportError of a partially initialized module.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Generator, Mapping
from pathlib import Path

from huggingface_hub import HfApi, errors, hf_hub_download

from pipeline.errors import UserError, first_line
from pipeline.progress import Progress, in_bytes

_PERIOD = 0.5  # seconds between two reports of progress


class Hub:
    """Downloads into a cache folder, where interrupted downloads resume.

    Args:
        cache: the folder.
        endpoint: of another hub than the public one.
    """

    def __init__(self, cache: Path, endpoint: str | None = None) -> None:
        self._cache, self._endpoint = cache, endpoint

    def files(self, name: str) -> dict[str, int]:
        """The size in bytes of each file of a repository.

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
        """Downloads files, given their sizes from `files`; returns their folder. Closing it ends
        the download after the current file.

        Raises:
            UserError: as in `files`; or the disk is full.
        """
        repository, _, revision = name.partition("@")
        total = sum(sizes.values())
        blobs = self._cache / f"models--{repository.replace('/', '--')}" / "blobs"
        self._require_space(name, total - _bytes_in(blobs))
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

    def _require_space(self, name: str, needed: int) -> None:
        self._cache.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._cache).free
        if needed > free:
            remedy = f"needs {in_bytes(needed)} and {self._cache} has {in_bytes(free)} left"
            raise UserError("disk", name, f"{remedy}; free space, or choose another --cache-dir")


def _bytes_in(folder: Path) -> int:
    """Bytes of finished and of partial downloads."""
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())


def _user_error(error: Exception, name: str) -> UserError:
    """The error of a download as a `UserError`."""
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
            remedy = "does not fit on the disk; free space, or choose another --cache-dir"
        case _:
            remedy = f"cannot be fetched: the hub does not answer ({first_line(error)[:120]})"
            remedy += "; check the network, or name a folder"
    return UserError("model", name, remedy)

"""The flags that all commands share: the pair, its weights, the device and the memory."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, get_args

from pipeline.environment import memory_bytes
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS, Pair, Weights, find_pair, own_pair
from pipeline.models.store import Store
from pipeline.progress import Progress, in_bytes
from pipeline.runtime.kv_cache.memory import parse_bytes

_MOST_THREADS = 1024  # more than machines have cores; OpenVINO fails where its counter overflows


class Parser(argparse.ArgumentParser):
    """Reports what it cannot read in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError("arguments", message, f"see {self.prog} --help")


@dataclass(frozen=True, slots=True)
class Choice:
    """A pair, the store of its models, the device, the limit of its KV caches in bytes, and the
    threads of inference; 0 leaves their number to OpenVINO.
    """

    pair: Pair
    store: Store
    device: str = "CPU"
    kv_memory: int | None = None
    threads: int = 0

    def obtain(self, loaded_bytes: int = 0) -> Iterator[Progress]:
        """Fetches or converts the models that are missing.

        Args:
            loaded_bytes: memory of another pair, which stays loaded meanwhile.

        Raises:
            UserError: a model cannot be fetched or converted, or the memory does not suffice.
        """
        needed = self.pair.memory_bytes + loaded_bytes
        if self.device == "CPU" and needed > memory_bytes():
            both = ", with the loaded pair," if loaded_bytes else ""
            there = in_bytes(memory_bytes())
            remedy = f"needs about {in_bytes(needed)}{both} and this machine has {there}"
            remedy += "; choose --weights int4"
            raise UserError("pair", self.pair.name, f"{remedy}, or a smaller pair")
        for model in self.pair.models:
            yield from self.store.obtain(model)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, which `chosen` reads."""
    weights = get_args(Weights)
    add = parser.add_argument
    add(
        "--pair",
        metavar="NAME",
        help=f"{', '.join(PAIRS)}, or a folder with target/ and draft/ or without "
        f"(default: {DEFAULT_PAIR})",
    )
    add(
        "--target",
        metavar="MODEL",
        help="a model of yours: name on the hub, perhaps @revision, folder with a checkpoint or an "
        "OpenVINO IR, or GGUF file",
    )
    add("--draft", metavar="MODEL", help="its draft, likewise (default: none, lookup drafts)")
    add("--weights", choices=weights, help="of models that are fetched (default: int8)")
    add("--draft-weights", choices=weights, help="of the draft (default: as --weights)")
    add("--device", default="CPU", help="CPU (default), or what else OpenVINO lists here")
    add("--kv-memory", metavar="SIZE", help="limit of the KV caches, such as 200MB (default: none)")
    add("--threads", type=int, default=0, metavar="N", help="of inference (default: OpenVINO's)")
    add("--cache-dir", type=Path, help="where models are kept (default: the user's cache)")
    add("--remote-code", action="store_true", help="let checkpoints run code of their own")


def chosen(options: argparse.Namespace) -> Choice:
    """The choice that the flags make.

    Raises:
        UserError: they contradict each other or the pair, or there is no such pair.
    """
    own = options.target, options.draft
    if any(own):
        if options.pair:
            raise UserError("pair", options.pair, "leave it out beside --target and --draft")
        pair = own_pair(options.target or "", options.draft)
    else:
        pair = find_pair(options.pair or DEFAULT_PAIR)
    store = Store(options.cache_dir)
    if options.draft_weights and not pair.draft:
        raise UserError("draft weights", options.draft_weights, "name a --draft, or leave it out")
    weights = options.weights, options.draft_weights or options.weights
    for wanted, model in zip(weights, pair.models, strict=False):
        if wanted and store.fixed(model):
            remedy = f"{model.name} is an IR, whose weights stay as they are; leave it out"
            raise UserError("weights", wanted, remedy)
    pair = pair.with_weights(*weights)
    if options.remote_code:
        pair = replace(
            pair,
            target=replace(pair.target, remote_code=True),
            draft=pair.draft and replace(pair.draft, remote_code=True),
        )
    kv_memory = parse_bytes(options.kv_memory) if options.kv_memory else None
    if not 0 <= options.threads <= _MOST_THREADS:
        remedy = f"choose 1 to {_MOST_THREADS:,}; 0 leaves it to OpenVINO"
        raise UserError("threads", options.threads, remedy)
    return Choice(pair, store, options.device, kv_memory, options.threads)


def state(pair: Pair, store: Store) -> str:
    """Whether the pair can run on this machine, in a few words."""
    if pair.memory_bytes > memory_bytes():
        there = in_bytes(memory_bytes())
        return f"too large: needs about {in_bytes(pair.memory_bytes)}, this machine has {there}"
    missing = [m for m in pair.models if store.find(m) is None]
    if not missing:
        return "ready"
    size = sum(model.download_bytes for model in missing)
    return f"to be downloaded: about {in_bytes(size)} at most" if size else "to be converted"


def listing(store: Store) -> Iterator[tuple[str, ...]]:
    """A table of the registry's pairs, its heading first."""
    yield "pair", "target", "draft", "parameters", "memory", "licence", "here"
    for pair in PAIRS.values():
        yield (
            pair.name,
            pair.target.name,
            pair.draft.name if pair.draft else "none",
            " + ".join(f"{model.parameters / 1e6:,.0f} M" for model in pair.models),
            in_bytes(pair.memory_bytes),
            " + ".join(dict.fromkeys(model.licence for model in pair.models)),
            state(pair, store),
        )

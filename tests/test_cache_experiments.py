"""The studies of caches: what they measure, on the tiny pair."""

import numpy as np
import pytest

from lab.prompts import FIRST
from lab.result import Result
from lab.studies import cache, compression, window
from lab.studies.compression import packed
from lab.study import Setup
from pipeline.environment import process_memory
from pipeline.models.choice import Choice
from pipeline.models.pairs import find_pair
from pipeline.models.store import Store
from pipeline.request import Request
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.tiny import CONTEXT, tiny, tiny_folder


def load(kind, precision):
    options = RuntimeOptions(kind, precision)
    return tuple(OVModel(tiny_folder() / role, options) for role in ("target", "draft"))


def tiny_setup():
    choice = Choice(find_pair(tiny_folder()), Store())
    return Setup(choice=choice, request=Request("Why?"), load=lambda _: tiny(), loaded=tiny())


@pytest.fixture(scope="module")
def sizes():
    """A short form of the study's rows, by cache and context."""
    *_, result = cache.measured(load, CONTEXT, 1, Result())
    assert result.complete
    return {(row["cache"], row["context"]): row for row in result.rows}


def test_every_kind_and_precision_is_measured_at_every_context_that_fits(sizes):
    contexts = cache.contexts_of(CONTEXT, 1, "paged")
    assert contexts == [64, 512, CONTEXT - 10]
    cached = {
        (f"{kind}, {precision}", context)
        for kind, precision in cache.CASES
        for context in contexts
        if kind != "uncached"
    }
    assert len(cached) == 11 * 3
    assert sizes.keys() == cached | {("uncached, f32", context) for context in (64, 512)}


def test_memory_grows_with_context_and_precision_and_is_both_models_in_speculation(sizes):
    for kind in ("paged", "stateful", "stateful-masked"):
        precisions = [precision for case, precision in cache.CASES if case == kind]
        bytes_of = [sizes[f"{kind}, {each}", 512]["target"] for each in precisions]
        assert bytes_of == sorted(bytes_of, reverse=True)
        assert sizes[f"{kind}, f32", 512]["target"] == pytest.approx(
            8 * sizes[f"{kind}, f32", 64]["target"]
        )
    for row in sizes.values():
        assert row["both"] >= row["target"]
    assert sizes["uncached, f32", 64]["both"] == 0


def test_allocations_are_counted_where_there_are_blocks(sizes):
    """Each model has at least the blocks that hold its tokens; every pool starts anew with 8, of
    which one is for padding, and doubles.
    """
    for (kind, context), row in sizes.items():
        if not kind.startswith("paged"):
            assert (row["allocated"], row["resized"]) == (None, None)
            continue
        blocks = -(-context // 32)
        assert 2 * blocks <= row["allocated"] < 2 * (blocks + 20)
        doublings = sum(8 * 2**n < blocks + 2 for n in range(9))
        assert row["resized"] in (2 * doublings, 2 * (doublings + 1))
    assert sizes["paged, f16", 512]["resized"] > sizes["paged, f16", 64]["resized"]
    expected = bool(process_memory())  # not every system reports it
    assert {row["grown"] is not None for row in sizes.values()} == {expected}


def test_lossless_compression_gives_back_what_it_was_given():
    zeros = np.zeros((4, 1000), np.float16)
    noise = np.random.default_rng(0).integers(0, 255, 4000, np.uint8)
    assert packed([zeros])[0] > 50
    assert packed([noise])[0] < 1.01
    half = np.random.default_rng(0).normal(size=4000).astype(np.float16)
    assert packed([half])[0] > 1.05  # exponents repeat; without a place of their own they do not


def test_compression_compares_every_precision_with_f32(monkeypatch):
    monkeypatch.setattr(compression, "FIRST", FIRST[:2])
    monkeypatch.setattr(compression, "_MAX_NEW_TOKENS", 32)
    *_, result = compression.STUDY.measure(tiny_setup())
    assert result.complete
    first, *others = result.rows
    assert [row["precision"] for row in result.rows] == ["f32", "f16", "u8", "u4"]
    assert (first["top1"], first["kl"], first["agreeing"]) == (1, 0, 1)
    assert others[0]["kl"] < others[1]["kl"] < others[2]["kl"]
    megabytes = [row["mb"] for row in result.rows]
    assert megabytes == sorted(megabytes, reverse=True)
    assert all(row["ratio"] > 0.9 for row in result.rows)


def test_selective_caches_are_compared_with_the_whole_one(monkeypatch):
    monkeypatch.setattr(window, "_MAX_NEW_TOKENS", 16)
    *_, result = window.STUDY.measure(tiny_setup())
    assert result.complete
    kept = [(row["tokens"], row["kept"]) for row in result.rows]
    # The tiny pair has no room for more.
    assert kept == [(512, "whole"), (512, "window"), (512, "mass")]
    whole, *selective = result.rows
    assert (whole["top1"], whole["kl"], whole["agreeing"]) == (1, 0, 1)
    for row in selective:
        assert row["top1"] > 0.99  # nothing is forgotten but while the answer grows
        assert row["mb"] == whole["mb"]

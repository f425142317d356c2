"""Paged caches: the same bits for every size of a forward pass, and the bookkeeping of blocks."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.caches import model
from tests.tiny import tiny_folder

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def folder():
    return tiny_folder() / "draft"


def read(lm, *passes):
    """The last logits of a sequence that shares nothing."""
    sequence = lm.sequence()
    *_, last = (sequence.forward(tokens, logits_to_keep=1).logits for tokens in passes)
    return last


def test_forward_passes_of_every_size_give_the_same_bits():
    """What lossless rests on: logits do not depend on how many tokens are verified at once."""
    tokens = np.random.default_rng(0).integers(0, 999, 90).tolist()
    alone = model("paged").sequence()
    alone.forward(tokens[:30], logits_to_keep=0)
    singles = np.concatenate(
        [alone.forward([token], logits_to_keep=1).logits for token in tokens[30:]]
    )
    for size in range(2, 10):
        together = model("paged").sequence()
        together.forward(tokens[:30], logits_to_keep=0)
        passes = [tokens[start : start + size] for start in range(30, 90, size)]
        logits = np.concatenate(
            [together.forward(each, logits_to_keep=len(each)).logits for each in passes]
        )
        assert (logits == singles).all()


def test_a_padded_forward_pass_gives_the_same_bits():
    tokens = np.random.default_rng(1).integers(0, 999, 60).tolist()
    one, padded = model("paged").sequence(), model("paged").sequence()
    for start in range(0, 60, 3):
        run = tokens[start : start + 3]
        plain = one.forward(run, logits_to_keep=3).logits
        assert (padded.forward(run, logits_to_keep=3, pad_to=9).logits == plain).all()
    assert len(padded) == 60


@pytest.mark.parametrize("precision", get_args(KVPrecision))
def test_a_shared_prefix_is_read_once_and_stays_as_it_is(precision, folder):
    """Whatever follows it, in whichever of the sequences that start from it."""
    lm = OVModel(folder, RuntimeOptions(kv_precision=precision))
    prefix = list(range(200, 240))  # a whole block, and some of another
    lm.share_prefix(prefix)
    for prompt in ([*prefix, 5, 6, 7], [*prefix, 8], [*prefix, 5, 6, 7]):
        first, second = lm.sequence(prompt=prompt), lm.sequence(prompt=prompt)
        assert len(first) == len(second) == 40
        second.forward([900, 901, 902], logits_to_keep=0)
        got = first.forward(prompt[40:], logits_to_keep=1).logits
        assert (got == read(lm, prefix, prompt[40:])).all()
        first.rollback(20)  # into what is shared, and another way
        first.forward(list(range(300, 330)), logits_to_keep=0)


@pytest.mark.parametrize("prompt", [[], [1, 2], [1, 2, 3], [1, 9, 3, 4]])
def test_only_prompts_that_go_on_from_the_shared_prefix_start_there(prompt, folder):
    lm = OVModel(folder)
    lm.share_prefix([1, 2, 3])
    assert len(lm.sequence(prompt=prompt)) == 0
    assert len(lm.sequence(prompt=[1, 2, 3, 4])) == 3


def test_a_dropped_sequence_frees_its_blocks(folder):
    lm = OVModel(folder)
    for _ in range(30):
        lm.sequence().forward(list(range(200)), logits_to_keep=0)  # seven blocks
    longest = lm.sequence()
    longest.forward(list(range(800)), logits_to_keep=0)
    assert longest.cache.pool.nbytes <= 64 / 25 * longest.kv_bytes


@pytest.mark.parametrize("precision", get_args(KVPrecision))
def test_a_pool_that_grows_takes_every_sequence_along(precision, folder):
    lm = OVModel(folder, RuntimeOptions(kv_precision=precision))
    old = lm.sequence()
    old.forward(list(range(50)), logits_to_keep=0)
    lm.sequence().forward(list(range(700)), logits_to_keep=0)
    got = old.forward([50], logits_to_keep=1).logits
    assert (got == read(lm, list(range(50)), [50])).all()


def test_a_sequence_holds_the_blocks_that_its_tokens_need():
    sequence = model("paged").sequence()
    assert sequence.kv_bytes == 0
    sequence.forward(list(range(33)), logits_to_keep=0)  # padded to 64, in a block of no sequence
    two = sequence.kv_bytes
    sequence.forward(list(range(300)), logits_to_keep=0)
    assert sequence.kv_bytes == two // 2 * 11
    sequence.rollback(32)
    assert sequence.kv_bytes == two // 2
    sequence.rollback(0)
    assert sequence.kv_bytes == 0


@pytest.mark.parametrize(("precision", "size"), [("f32", 4), ("f16", 2)])
def test_the_effective_precision_is_reported_and_sets_the_bytes(precision, size, folder):
    lm = OVModel(folder, RuntimeOptions("paged", precision))
    sequence = lm.sequence()
    sequence.forward([1] * 32, logits_to_keep=0)
    whole = OVModel(folder, RuntimeOptions("paged", "f32")).sequence()
    whole.forward([1] * 32, logits_to_keep=0)
    assert lm.kv_precision == precision
    assert sequence.kv_bytes == whole.kv_bytes * size // 4


_AT_WORK = """
import sys, threading
from pathlib import Path
from pipeline.runtime.model import OVModel

model = OVModel(Path(sys.argv[1]))
sequence = model.sequence()
sequence.forward([1, 2, 3], 1)
held = threading.Event()

def hold():
    with model.compiled.lock:
        held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
"""


def test_a_process_does_not_wait_for_a_forward_pass_that_is_under_way(folder):
    command = [sys.executable, "-c", _AT_WORK, str(folder)]
    subprocess.run(command, check=True, timeout=60, cwd=ROOT)

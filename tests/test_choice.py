"""Which pair, at which weights: the flags, and what is said of each pair."""

import argparse

import pytest

from lab.saved import saved
from pipeline.errors import UserError
from pipeline.models import choice as choices
from pipeline.models.choice import LISTING_NOTE, add_arguments, chosen, listing, state
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.models.store import Store


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return chosen(parser.parse_args(arguments))


def test_weights_are_of_both_models_or_of_each():
    both = parsed("--pair", "dolly-v2-3b", "--weights", "int4").pair
    assert (both.target.weights, both.draft.weights) == ("int4", "int4")
    each = parsed("--pair", "dolly-v2-12b", "--weights", "int4", "--draft-weights", "int8").pair
    assert (each.target.weights, each.draft.weights) == ("int4", "int8")


def test_the_folder_that_one_is_in_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "mine" / "target").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mine")
    assert [parsed(flag, ".").pair.name for flag in ("--pair", "--target")] == ["mine", "mine"]


def test_a_pair_of_ones_own_is_any_two_models(tmp_path):
    choice = parsed("--target", "me/big@refs/pr/3", "--draft", str(tmp_path), "--remote-code")
    assert choice.pair.target.id == "me/big@refs/pr/3"
    assert choice.pair.draft.id == str(tmp_path)
    assert choice.pair.target.remote_code
    assert choice.pair.draft.remote_code


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--target", "me/big", "--draft", " "], "draft: “ ” — name a model"),
        (["--target", "me/big", "--draft-weights", "int8"], "draft weights: .* name a --draft"),
        (["--draft", "me/small"], "target: "),
        (["--pair", "dolly-v2-3b", "--target", "a/b", "--draft", "c/d"], "leave it out"),
        (["--pair", "dolly-v2-4b"], "pair: “dolly-v2-4b”"),
        (["--weights", "int8"], f"weights: “int8” — {DEFAULT_PAIR}/target is an IR"),
        (["--draft-weights", "int8"], f"weights: “int8” — {DEFAULT_PAIR}/draft is an IR"),
    ],
)
def test_flags_that_do_not_agree_are_one_line(arguments, says):
    with pytest.raises(UserError, match=says):
        parsed(*arguments)


def test_the_listing_says_what_is_ready_what_is_missing_and_what_is_too_large(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(choices, "memory_bytes", lambda: 9 * 10**9)
    heading, *rows = listing(Store(tmp_path))
    here = {row[0]: row[heading.index("here")] for row in rows}
    assert here[DEFAULT_PAIR] == "ready"
    assert here["dolly-v2-3b"] == "to be downloaded: about 5.9 GB at most"
    assert here["dolly-v2-12b"].startswith("too large: needs about 17.0 GB")
    assert state(PAIRS["dolly-v2-12b"].with_weights("int4", "int4"), Store(tmp_path)) != "ready"


def test_the_listing_gives_the_disk_of_a_conversion_and_what_was_measured(tmp_path):
    heading, *rows = listing(Store(tmp_path))
    disk = {row[0]: row[heading.index("disk")] for row in rows}
    assert disk[DEFAULT_PAIR] == "none"
    assert disk["dolly-v2-3b"] == "8.8 GB"  # 2.94 G weights: 2 bytes each, and 8.1 bits
    figures = saved("full_size").figures
    found = figures["stages"]["convert dolly-v2-3b int8"], figures["projected"]
    gigabytes, seconds = zip(
        *((each["peak_gib"] * 2**30 / 1e9, each["seconds"]) for each in found), strict=True
    )
    token_ms = next(row["exact_ms"] for row in saved("full_size").rows if row["weights"] == "int8")
    for words in (
        f"{gigabytes[0]:.1f} GB of memory and {seconds[0]:.0f} s, a token {token_ms:.0f} ms",
        f"dolly-v2-12b, {gigabytes[1]:.1f} GB and {seconds[1]:.0f} s",
    ):
        assert words in LISTING_NOTE.replace("\n", " ")


def test_a_pair_too_large_for_this_machine_is_refused_before_it_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "memory_bytes", lambda: 10**9)
    choice = parsed("--pair", "dolly-v2-12b", "--cache-dir", str(tmp_path))
    with pytest.raises(UserError, match="int4"):
        next(choice.obtain())
    assert not [*tmp_path.iterdir()]

"""The memory of a pair's caches: what a run reports of it, and what a run does at its limit."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.trace.metrics import cache_use
from pipeline.trace.reader import parse_trace
from tests.tiny import tiny, tiny_folder
from ui.run.turn import Turn
from ui.session import Session
from ui.tabs.cache import picture

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 800_000  # bytes: the pools begin with 460,000, and a race of 900 tokens needs 2 million
LINE = "kv-memory: “800 kB” — the KV caches need more; "
LONG, SHORT = 900, 40  # new tokens


@cache
def limited() -> Dolly:
    return Dolly(tiny_folder(), kv_memory=LIMIT)


def command(*arguments):
    return ["Why is the sky blue?", "--pair", str(tiny_folder()), *arguments]


def test_a_run_that_reaches_the_limit_keeps_its_answer_so_far_and_the_next_run_works():
    run = limited().start(Request("Why is the sky blue?", max_new_tokens=LONG))
    with pytest.raises(UserError, match=f"^{LINE}"):
        run.finish()
    trace, whole = run.trace(), tiny().start(Request("Why is the sky blue?", max_new_tokens=300))
    expected = whole.finish().autoregressive.text
    for lane in trace.lanes.values():
        assert lane.finish == "error"
        assert len(lane.tokens) > 20
        assert expected.startswith(lane.text[: len(expected)])
    after = limited().start(Request("Why is the sky blue?", max_new_tokens=SHORT)).finish()
    assert after.identical
    assert parse_trace(trace.to_json()) == trace


def test_a_run_that_is_started_during_another_works_after_it_where_both_would_not_fit():
    first = iter(limited().start(Request("Why is the sky blue?", max_new_tokens=SHORT)))
    next(first)
    other = Request("Why?", max_new_tokens=SHORT, kv_cache="window")
    second = limited().start(other)  # whose caches are pools of their own
    list(first)
    assert second.finish().finished


def test_no_step_holds_more_than_the_limit():
    run = limited().start(Request("Why?", max_new_tokens=LONG))
    with pytest.raises(UserError):
        run.finish()
    steps = [step for lane in run.trace().lanes.values() for step in lane.steps]
    assert max(s.target_pool.pool_bytes + s.draft_pool.pool_bytes for s in steps) <= LIMIT


def test_the_terminal_keeps_the_answer_so_far(tmp_path, capsys):
    file = tmp_path / "trace.json"
    limits = ["--kv-memory", "0.8MB", "--max-new-tokens", str(LONG), "--json", str(file)]
    assert main(command(*limits)) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(LINE)
    assert len(printed.err.splitlines()) == 1
    trace = parse_trace(file.read_text())
    assert all(lane.finish == "error" and lane.text in printed.out for lane in trace.lanes.values())
    assert trace.pair["kv_memory"] == LIMIT


def test_the_page_keeps_the_answer_so_far_and_the_next_run_works():
    session = Session()
    asked = Request("Why is the sky blue?", max_new_tokens=LONG)
    *_, changes = session.race(limited(), asked, Turn())
    assert changes.notice.startswith(LINE)
    lines = [*map(json.loads, changes.lines.splitlines())]
    assert {line["reason"] for line in lines if line["kind"] == "end"} == {"error"}
    assert sum(line["kind"] == "step" for line in lines) > 20
    *_, changes = session.race(limited(), Request("Why?", max_new_tokens=SHORT), Turn())
    assert "Identical text." in changes.verdict.values()
    session.close()


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        ("many", "kv-memory: “many” — choose a size such as 200MB or 1.5GB."),
        ("0.1MB", "kv-memory: “100 kB” — the KV caches need more; "),
    ],
)
@pytest.mark.parametrize("file", ["app.py", "-m pipeline Why?"])
def test_a_limit_that_cannot_be_kept_is_one_line_and_status_2(file, limit, line):
    arguments = [*file.split(), "--pair", str(tiny_folder()), "--kv-memory", limit]
    if file == "app.py":
        arguments.append("--fixed-pair")
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(line)
    assert "Traceback" not in done.stderr


def test_a_cache_without_blocks_cannot_be_limited():
    with pytest.raises(UserError, match=r"^KV cache: “stateful” — its memory has no limit; "):
        limited().start(Request("Why?", kv_cache="stateful"))
    assert limited().start(Request("Why?", max_new_tokens=8)).finish().identical


def test_a_step_reports_the_pools_of_both_models():
    trace = tiny().start(Request("Why?", max_new_tokens=200)).finish()
    for lane in trace.lanes.values():
        for model, use in cache_use(trace, lane).items():
            for tokens, pool in zip(use.blocks, use.pools, strict=True):
                assert tokens < pool.used <= pool.blocks  # the padding, and perhaps the other lane
                assert pool.used <= pool.high_water
            assert use.pools[-1].recycled >= use.pools[0].recycled
            assert any(pool.shared for pool in use.pools), model  # the prefix of all prompts
    assert parse_trace(trace.to_json()) == trace


def test_a_shared_block_is_copied_when_a_run_writes_to_it():
    dolly = tiny()
    before = dolly.models().target.pool
    dolly.start(Request("Why?", max_new_tokens=2), "autoregressive").finish()
    after = dolly.models().target.pool
    assert after.copied == before.copied + 1  # the last block of the shared prefix
    assert (after.used, after.shared) == (before.used, before.shared)
    assert after.recycled > before.recycled


def test_the_cache_tab_shows_the_pools_and_the_limit():
    trace = limited().start(Request("Why?", max_new_tokens=SHORT)).finish()
    shown = picture(trace)
    assert shown["limit"] == LIMIT
    last = trace.speculative.steps[-1].target_pool
    assert shown["models"]["target"][-1]["pool"]["used"] == last.used
    assert picture(tiny().start(Request("Why?", max_new_tokens=2)).finish())["limit"] == 0


@pytest.mark.parametrize("field", ["used", "shared", "high_water"])
def test_a_pool_that_contradicts_itself_is_refused(field):
    trace = tiny().start(Request("Why?", max_new_tokens=2)).finish()
    record = json.loads(trace.to_json())
    pool = record["lanes"]["speculative"]["steps"][0]["target_pool"]
    pool[field] = 0 if field == "high_water" else 10**6
    with pytest.raises(UserError, match=r"^trace lanes.speculative.steps\[0\].target_pool"):
        parse_trace(json.dumps(record))


def test_what_the_blocks_in_use_hold_of_the_limit_is_reported_with_the_process():
    (use,) = [use for use in limited().memory_uses() if use.what == "the KV caches"]
    models = limited().models()
    pools = [model.pool for model in (models.target, models.draft, models.block_draft) if model]
    each = [pool.used * (pool.pool_bytes // pool.blocks) for pool in pools]
    assert (use.used, use.limit) == (sum(each), LIMIT)
    assert not [use for use in tiny().memory_uses() if use.what == "the KV caches"]

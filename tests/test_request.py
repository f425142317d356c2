"""Each value out of range is one line that names the field, the value and the remedy."""

import json
import math
import subprocess
import sys

import pytest

from pipeline.errors import UserError
from pipeline.request import Request


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("draft_length", 0, "draft length"),
        ("draft_length", 9, "draft length"),
        ("draft_length", 2.5, "draft length"),
        ("max_new_tokens", 0, "new tokens"),
        ("max_new_tokens", 10**9, "new tokens"),
        ("max_new_tokens", True, "new tokens"),
        ("temperature", -1, "temperature"),
        ("temperature", math.nan, "temperature"),
        ("temperature", math.inf, "temperature"),
        ("temperature", None, "temperature"),
        ("top_p", 0, "top-p"),
        ("top_p", 1.1, "top-p"),
        ("top_k", -1, "top-k"),
        ("seed", -1, "seed"),
        ("seed", "7", "seed"),
        ("kv_cache", "disk", "KV cache"),
        ("drafter", "oracle", "drafter"),
        ("kv_precision", "u2", "KV precision"),
        ("verification", "twice", "verification"),
        ("verification", ["block"], "verification"),
        ("context", "a\0", "context"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_remedy(field, value, name):
    with pytest.raises(UserError) as caught:
        Request("Why?", **{field: value})
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert " — " in message
    assert "\n" not in message


def test_the_edges_of_every_range_are_allowed():
    Request("Why?", draft_length=1, max_new_tokens=1, temperature=0, top_p=1, top_k=0, seed=0)
    Request("Why?", draft_length="auto")
    Request("Why?", draft_length=8, temperature=5.0, top_p=0.01, seed=2**32 - 1)


DECLARED = """
import json, pathlib, sys, types
source = pathlib.Path("pipeline/request.py").read_text()
setting = 'Setting("min-p", "0 keeps all", "sampling", True, high=1)'
field = f"    min_p: Annotated[float, {setting}] = 0.0"
before, stop, after = source.partition("    stop: Annotated")
module = sys.modules["pipeline.request"] = types.ModuleType("pipeline.request")
exec(compile(before + field + chr(10) + stop + after, "request", "exec"), vars(module))

from pipeline.__main__ import _parser, _request
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from tests.fake_dolly import FakeDolly, loader_of
from ui.chat.request import parse_chat_request
from ui.page import Page

options = _parser().parse_args(["Why?", "--min-p", "0.25"])
chat = {"model": "any", "messages": [{"role": "user", "content": "Why?"}], "min_p": 0.25}
page = Page(loader_of(FakeDolly(["a", "b"])))
field = page._controls.fields["min_p"]
form = [0.25 if each is field else each.value for each in page._controls.inputs[1:]]
asked = page._controls.request(*form)
api = page.blocks.get_api_info()["named_endpoints"]["/trace"]["parameters"]
print(json.dumps({
    "command line": _request(options, PAIRS[DEFAULT_PAIR]).min_p,
    "chat API": parse_chat_request(json.dumps(chat).encode()).request(PAIRS[DEFAULT_PAIR]).min_p,
    "form": asked.min_p,
    "shown": [field.label, field.info],
    "API": "min_p" in [each["parameter_name"] for each in api],
}))
"""


def test_a_field_that_is_declared_is_in_the_form_on_the_command_line_and_in_both_apis():
    """In a process of its own, with a copy of the declarations that has one more."""
    done = subprocess.run([sys.executable, "-c", DECLARED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *each, shown, api = json.loads(done.stdout.splitlines()[-1]).values()
    assert each == [0.25] * 3
    assert (shown, api) == (["Min-p", "0 keeps all"], True)

"""How a model is asked that was not taught Dolly's prompt."""

import json

import pytest

from pipeline.errors import UserError
from pipeline.text.chat import ChatTemplate, find_template
from pipeline.text.prompt import ADDED_TOKENS
from pipeline.text.tokenizer import Tokenizer
from tests.tiny_tokenizer import write_tokenizer

CHATML = (  # as Qwen's begins
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "<|im_end|>\n{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def folder_with(tmp_path, **config):
    """A model's folder without Dolly's marks, and its tokenizer_config.json."""
    tokenizer = json.loads((write_tokenizer(tmp_path) / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [
        token for token in tokenizer["added_tokens"] if token["content"] not in ADDED_TOKENS
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_template_makes_one_users_message_and_opens_the_answer():
    rendered = ChatTemplate(CHATML, {}).render("Why?", "")
    assert rendered == "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"


def test_special_tokens_are_there_by_their_names_however_they_are_written(tmp_path):
    source = "{{ bos_token }}[INST] {{ messages[0]['content'] }} [/INST]"
    folder = folder_with(
        tmp_path, chat_template=source, bos_token={"content": "<s>"}, eos_token="</s>"
    )
    assert find_template(folder).render("Why?", "Because.") == "<s>[INST] Because.\n\nWhy? [/INST]"


def test_the_default_of_several_templates_is_taken(tmp_path):
    templates = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "{{ messages[0].content }}"},
    ]
    folder = folder_with(tmp_path, chat_template=templates)
    assert find_template(folder).render("Why?", "") == "Why?"


def test_what_a_user_types_is_never_part_of_the_template():
    rendered = ChatTemplate(CHATML, {}).render("{{ 7 * 7 }} {% raise %} ${x}", "")
    assert "{{ 7 * 7 }} {% raise %} ${x}" in rendered


@pytest.mark.parametrize(
    "source",
    [
        "{% for %}",
        "{{ raise_exception('only two roles') }}",
        "{{ messages[7].content.x }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
)
def test_a_bad_or_hostile_template_is_one_line(source):
    with pytest.raises(UserError, match=r"^chat template: ") as caught:
        ChatTemplate(source, {}).render("Why?", "")
    assert "\n" not in str(caught.value)


def test_each_tokenizer_is_asked_in_its_own_format(tmp_path):
    assert Tokenizer(write_tokenizer(tmp_path)).format == "dolly"
    chat = Tokenizer(folder_with(tmp_path, chat_template=CHATML))
    assert chat.format == "chat"
    assert chat.ask(" Why? ") == chat.encode(
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )
    plain = Tokenizer(folder_with(tmp_path))
    assert plain.format == "plain"
    assert plain.ask("Why?", "Because.") == plain.encode("Because.\n\nWhy?")


def test_an_answer_ends_where_the_models_own_files_say(tmp_path):
    folder = folder_with(tmp_path, eos_token="dog")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    tokenizer = Tokenizer(folder)
    assert {5, 6} <= tokenizer.end_ids
    (folder / "generation_config.json").unlink()
    assert Tokenizer(folder).end_ids.isdisjoint({5, 6})


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_an_unreadable_configuration_is_one_line(tmp_path, text):
    for name in ("tokenizer_config.json", "generation_config.json"):
        folder = tmp_path / name
        folder.mkdir()
        write_tokenizer(folder)
        (folder / name).write_text(text)
        with pytest.raises(UserError, match=name):
            Tokenizer(folder)

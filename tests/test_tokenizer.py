"""Prompts in each model's own format, and text that streams whole characters."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers

from pipeline.errors import UserError
from pipeline.models.pairs import EMBEDDED
from pipeline.text.chat import ChatTemplate, find_template
from pipeline.text.prompt import ADDED_TOKENS, END_KEY, format_prompt
from pipeline.text.tokenizer import Tokenizer, shared_vocabulary
from tests.lines import one_line
from tests.tiny_tokenizer import write_tokenizer

TOKENIZER = Tokenizer(EMBEDDED / "target")


def test_the_prompt_is_dollys_with_and_without_a_context():
    assert format_prompt(" Why? ") == (
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nWhy?\n\n### Response:\n"
    )
    asked = format_prompt("Why?", "Because.")
    assert asked.endswith("### Instruction:\nWhy?\n\nInput:\nBecause.\n\n### Response:\n")


@pytest.mark.parametrize("added", ADDED_TOKENS)
def test_each_of_dollys_marks_is_one_token(added):
    assert len(TOKENIZER.encode(added)) == 1


def test_the_end_key_ends_and_has_no_text():
    end = TOKENIZER.vocab[END_KEY]
    assert end in TOKENIZER.end_ids
    assert TOKENIZER.detokenizer().push(end) == ""


# SmolLM2's vocabulary has no token for some control characters, nor for the first byte of
# characters of planes 4 to 11, none of which is assigned.
KNOWN = st.characters(
    exclude_categories=["Cs"], exclude_characters="\4\6\x13\x14\x16\x1d", max_codepoint=0x3FFFF
)


@settings(max_examples=300)
@given(st.text(KNOWN, max_size=40))
def test_pieces_join_to_the_text_and_are_whole_characters(text):
    stream = TOKENIZER.detokenizer()
    pieces = [stream.push(token) for token in TOKENIZER.encode(text)]
    expected = text.replace(END_KEY, "").replace("<|endoftext|>", "")
    assert "".join(pieces) == expected
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tiny").mkdir()
    return Tokenizer(write_tokenizer(tmp_path / "tiny"))


def test_a_character_in_several_tokens_appears_with_its_last(tiny):
    tokens = tiny.encode("😀")
    assert len(tokens) > 1
    stream = tiny.detokenizer()
    assert [stream.push(token) for token in tokens] == [""] * (len(tokens) - 1) + ["😀"]


@pytest.mark.parametrize("text", ["", "  \n", "a\0b", "\ud83d", "x" * 1_000_000])
def test_a_bad_instruction_is_one_line_that_names_it(text):
    with pytest.raises(UserError) as caught:
        format_prompt(text)
    message = str(caught.value)
    assert message.startswith("instruction: ")
    assert message.isprintable()
    assert len(message) < 300


def test_a_damaged_tokenizer_is_one_line(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="unreadable"):
        Tokenizer(tmp_path)


def with_changes(tmp_path, change):
    data = json.loads((write_tokenizer(tmp_path) / "tokenizer.json").read_text())
    change(data)
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    return Tokenizer(tmp_path)


def test_a_draft_may_lack_tokens_that_were_added_to_the_target(tmp_path, tiny):
    def forget(data):
        data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] not in ADDED_TOKENS]

    draft = with_changes(tmp_path, forget)
    assert shared_vocabulary(tiny, draft) == draft.size < tiny.size


def test_two_tokenizers_that_differ_are_refused_with_the_first_id(tmp_path, tiny):
    def swap(data):
        vocab = data["model"]["vocab"]
        first, second = (piece for piece, token in vocab.items() if token in (700, 900))
        vocab[first], vocab[second] = vocab[second], vocab[first]
        data["model"]["merges"] = []

    with pytest.raises(UserError, match=r"^draft tokenizer: “id 700 is .*in the target it is"):
        shared_vocabulary(tiny, with_changes(tmp_path, swap))


def test_tokenizers_that_cut_a_text_otherwise_are_refused(tmp_path, tiny):
    def cut(data):
        data["model"]["merges"] = data["model"]["merges"][:10]

    with pytest.raises(UserError, match=r"cuts a text otherwise: its id \d+ is"):
        shared_vocabulary(tiny, with_changes(tmp_path, cut))


def test_sentencepiece_blanks_and_bytes_become_text(tmp_path):
    """Llama 2's kind: a mark for blanks, and bytes for what it has no piece for."""
    vocab = {"<unk>": 0, "▁": 1, "▁Hi": 2, "<0xF0>": 3, "<0x9F>": 4, "<0xA6>": 5, "<0x8A>": 6}
    fast = FastTokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    fast.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    fast.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    stream = tokenizer.detokenizer()
    assert [stream.push(token) for token in (2, 1, 3, 4, 5, 6)] == [" Hi", " ", "", "", "", "🦊"]


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
    with one_line("^chat template: "):
        ChatTemplate(source, {}).render("Why?", "")


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

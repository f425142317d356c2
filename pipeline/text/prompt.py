"""Dolly v2's prompt format and its end key (databricks/dolly, `instruct_pipeline.py`).

Works on text, not on tokens.
"""

from __future__ import annotations

from pipeline.errors import UserError

INTRO = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request."
)
INSTRUCTION_KEY = "### Instruction:"
INPUT_KEY = "Input:"
RESPONSE_KEY = "### Response:\n"
END_KEY = "### End"
_PROMPT_PREFIX = f"{INTRO}\n\n{INSTRUCTION_KEY}"
ADDED_TOKENS = (END_KEY, INSTRUCTION_KEY, RESPONSE_KEY)

MAX_CHARACTERS = 100_000  # far beyond any context; bounds the time of tokenization


def format_prompt(instruction: str, context: str = "") -> str:
    """The text that Dolly was trained to continue.

    Args:
        instruction: the task; must not be blank.
        context: the text for the task, such as a passage or a list; may be empty.

    Raises:
        UserError: either text is blank where it must not be, too long, or not valid text.
    """
    instruction, context = check_texts(instruction, context)
    given = f"{instruction}\n\n{INPUT_KEY}\n{context}" if context else instruction
    return f"{_PROMPT_PREFIX}\n{given}\n\n{RESPONSE_KEY}"


def check_texts(instruction: str, context: str = "") -> tuple[str, str]:
    """Both texts without surrounding blanks.

    Raises:
        UserError: either text is blank where it must not be, too long, or not valid text.
    """
    instruction, context = _clean("instruction", instruction), _clean("context", context)
    if not instruction:
        raise UserError("instruction", "", "type what Dolly should do")
    return instruction, context


def _clean(field: str, text: str) -> str:
    """`text` without surrounding blanks; raises UserError if it is not valid."""
    if not isinstance(text, str):
        raise UserError(field, text, "give it as text")
    if len(text) > MAX_CHARACTERS:
        remedy = f"shorten its {len(text):,} characters to at most {MAX_CHARACTERS:,}"
        raise UserError(field, text, remedy)
    if "\0" in text:
        raise UserError(field, text, "remove the NUL characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(field, text, "remove the lone surrogates (broken emoji)") from None
    return text.strip()

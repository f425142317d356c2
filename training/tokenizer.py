"""The pair's one tokenizer: a byte-level BPE with Dolly's three added tokens.

`python -m training.tokenizer` trains it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.errors import UserError
from pipeline.text.prompt import ADDED_TOKENS
from training import corpus
from training.command import Command, run
from training.files import replacing

END_OF_TEXT = "<|endoftext|>"  # id 0, as in GPT-NeoX
FILE = "tokenizer.json"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A tokenizer of `vocab_size` entries at most, the added tokens included.

    Nothing is normalised, so that decoding gives the very bytes back.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(ADDED_TOKENS),
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ADDED_TOKENS])
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a work folder; raises UserError if it is not made yet."""
    path = folder / FILE
    if not path.exists():
        raise UserError("tokenizer", str(path), "run python -m training.tokenizer first")
    return Tokenizer.from_file(str(path))


def main(command: Command) -> None:
    """Trains the tokenizer on every record that may be trained on."""
    records = corpus.dolly(command.data) + corpus.oasst(command.data)
    texts = (f"{r.instruction}\n{r.context}\n{r.response}" for r in records)
    tokenizer = train_tokenizer(texts, command.profile.vocab_size)
    with replacing(command.work / FILE) as path:
        tokenizer.save(str(path))
    print(f"{tokenizer.get_vocab_size()} entries in {command.work / FILE}")


if __name__ == "__main__":
    run(main, __doc__)

"""A tokenizer of GPT-NeoX's kind, with Dolly's three tokens at the end of a small vocabulary."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.text.prompt import ADDED_TOKENS

VOCABULARY = 1024
_TEXT = Path(__file__).resolve().parents[1] / "LICENSE"  # English that never changes


def write_tokenizer(folder: Path) -> Path:
    """Adds its `tokenizer.json` to a folder; returns the folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(ADDED_TOKENS),
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT.read_text()], trainer)
    tokenizer.add_special_tokens([*ADDED_TOKENS])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder

"""A tiny pair, for tests that need a pair and not the one that is shipped (`tests.embedded`).

Its weights are random: it makes no sense, soon repeats itself and never ends. The draft is the
first layers of the target, which makes about half of its tokens the target's.
"""

from __future__ import annotations

import hashlib
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from filelock import FileLock

from pipeline.dolly import Dolly
from pipeline.models import export
from tests.tiny_tokenizer import VOCABULARY, write_tokenizer

if TYPE_CHECKING:  # importing it takes seconds
    from transformers import LlamaForCausalLM

CONTEXT, WIDTH, LAYERS = 1024, 64, 3  # of the target
_TESTS = Path(__file__).parent
_MADE = _TESTS.parent / ".pytest_cache" / "tiny"
_TRAINING = _TESTS.parent / "lab" / "training"
_MADE_BY = (
    Path(__file__),
    _TESTS / "tiny_tokenizer.py",
    Path(export.__file__),
    _TRAINING / "block.py",
    _TRAINING / "block_ir.py",
)
_MADE_WITH = ("torch", "transformers", "optimum-intel", "nncf", "openvino")


@cache
def tiny() -> Dolly:
    """The pair, compiled once for all tests."""
    return Dolly(tiny_folder())


@cache
def tiny_folder() -> Path:
    """Its `target/`, `draft/` and `block/`, not to be written to: made once, and kept for the next
    session, until what makes it has changed.
    """
    key = hashlib.sha256(b"".join(file.read_bytes() for file in _MADE_BY))
    key.update(" ".join(map(version, _MADE_WITH)).encode())
    folder = _MADE / key.hexdigest()[:12]
    _MADE.mkdir(parents=True, exist_ok=True)
    with FileLock(_MADE / "lock"):  # tests run in several processes
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=_MADE) as work:
                _make(Path(work))
                (Path(work) / "pair").rename(folder)
    return folder / "tiny"


def _make(work: Path) -> None:
    import torch

    torch.manual_seed(0)
    target, draft = _model(LAYERS), _model(LAYERS - 1)
    with torch.no_grad():
        for weights in target.parameters():
            if weights.dim() > 1:
                weights.normal_(std=0.2)
        target.model.embed_tokens.weight *= 5  # else the next token hardly depends on the last
        for layer in target.model.layers:
            layer.self_attn.o_proj.weight *= 0.4  # and little on others, so that it repeats itself
        layer.mlp.down_proj.weight *= 0.5
        target.lm_head.weight *= 1.5  # tokens that are not nearly tied
        often = torch.arange(300, VOCABULARY, 24)  # parts of words
        target.lm_head.weight[often] *= 2
        target.lm_head.weight[[0, *range(VOCABULARY - 3, VOCABULARY)]] = 0  # its end tokens
    draft.load_state_dict(target.state_dict(), strict=False)
    for role, model in (("target", target), ("draft", draft)):
        model.save_pretrained(work / role)
        write_tokenizer(work / role)
        export.export(work / role, work / "pair" / "tiny" / role)
    _make_block(work, draft)


def _make_block(work: Path, draft: LlamaForCausalLM) -> None:
    """A block draft of the draft's layers, which reads a little of the target's states."""
    import torch

    from lab.training.block import BlockDraft, save_block
    from lab.training.block_ir import export_block
    from lab.training.draft import Rows
    from lab.training.recipe import Block

    hidden_layers = (0, LAYERS - 1)
    model = BlockDraft(draft, len(hidden_layers) * WIDTH, Block(rank=4))
    torch.nn.init.normal_(model.after.weight, std=0.05)
    rows = Rows([*range(VOCABULARY)], np.arange(VOCABULARY), 0)
    save_block(model, rows, hidden_layers, work / "draft", work / "block")
    export_block(work / "block", work / "pair" / "tiny" / "block", "int8")


def _model(layers: int) -> LlamaForCausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=128,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config).eval()

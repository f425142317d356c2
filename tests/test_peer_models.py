"""Other engines run the same pair: its weights as GGUF, its draft with the whole vocabulary."""

import json
from copy import deepcopy
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lab.engines.gguf_file import write_gguf
from lab.engines.models import DRAFT_GGUF, TARGET_GGUF, Models, for_peers, with_vocabulary
from lab.engines.unpacked import unpacked
from pipeline.errors import UserError
from pipeline.models.export import export
from pipeline.runtime.ir import read_config
from pipeline.runtime.vocabulary import Vocabulary
from tests.families import FAMILIES, VOCABULARY, make_checkpoint

IDS = np.arange(0, VOCABULARY, 5)  # tokens of the trimmed draft


def trimmed(tied: bool) -> torch.nn.Module:
    """A Llama model with random weights and a row for each of `IDS`."""
    torch.manual_seed(1)
    shape = FAMILIES["llama"] | {"vocab_size": len(IDS), "tie_word_embeddings": tied}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **shape)).eval()
    for weights in model.parameters():
        if weights.dim() > 1:  # or the logits would hardly differ
            torch.nn.init.normal_(weights, std=0.2)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """An INT4 target and an INT8 draft with a trimmed vocabulary, and what peers read of them."""
    folder = tmp_path_factory.mktemp("pair")
    make_checkpoint("llama", folder / "checkpoint")
    draft = trimmed(tied=True)
    draft.config.target_ids = "target_ids.json"
    draft.save_pretrained(folder / "trimmed")
    (folder / "trimmed" / "target_ids.json").write_text(json.dumps(IDS.tolist()))
    tokenizer = (folder / "checkpoint" / "tokenizer.json").read_bytes()
    (folder / "trimmed" / "tokenizer.json").write_bytes(tokenizer)
    pair = Models(
        export(folder / "checkpoint", folder / "target", "int4"),
        export(folder / "trimmed", folder / "draft", "int8"),
    )
    return for_peers(pair, tmp_path_factory.mktemp("peers"))


def read_gguf(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    """The type and the values of each tensor."""
    return {
        tensor.name: (
            tensor.tensor_type.name,
            gguf.quants.dequantize(tensor.data, tensor.tensor_type),
        )
        for tensor in gguf.GGUFReader(path).tensors
    }


def test_a_gguf_file_has_the_values_of_the_ir_and_describes_it(models: Models) -> None:
    """Four-bit values to within a 200th of the distance between two levels."""
    assert models.gguf is not None
    tensors = read_gguf(models.gguf / TARGET_GGUF)
    weights = {name: w.detach().numpy() for name, w in unpacked(models.target).named_parameters()}
    assert len(tensors) == len(weights)
    layer = "model.layers.1."
    for name, there, kind in (
        ("blk.1.attn_v", f"{layer}self_attn.v_proj", "Q4_1"),
        ("blk.1.attn_output", f"{layer}self_attn.o_proj", "Q4_1"),
        ("blk.1.ffn_gate", f"{layer}mlp.gate_proj", "Q4_1"),
        ("blk.1.ffn_up", f"{layer}mlp.up_proj", "Q4_1"),
        ("blk.1.ffn_down", f"{layer}mlp.down_proj", "Q4_1"),
        ("token_embd", "model.embed_tokens", "Q8_0"),
        ("output", "lm_head", "Q8_0"),
        ("blk.1.attn_norm", f"{layer}input_layernorm", "F32"),
        ("blk.1.ffn_norm", f"{layer}post_attention_layernorm", "F32"),
        ("output_norm", "model.norm", "F32"),
    ):
        found, values = tensors[f"{name}.weight"]
        expected = weights[f"{there}.weight"]
        within = {"Q4_1": np.ptp(expected) / 15 / 200, "Q8_0": np.abs(expected).max() / 250}
        assert found == kind
        assert np.abs(values - expected).max() <= within.get(kind, 0), name
    fields = gguf.GGUFReader(models.gguf / TARGET_GGUF).fields
    told = {name: field.contents() for name, field in fields.items()}
    config = json.loads((models.target / "config.json").read_text())
    assert told["llama.attention.head_count"] == config["num_attention_heads"]
    assert told["llama.attention.head_count_kv"] == config["num_key_value_heads"]
    assert told["llama.rope.dimension_count"] == config["head_dim"]
    assert told["llama.rope.freq_base"] == config["rope_parameters"]["rope_theta"]
    assert len(told["tokenizer.ggml.tokens"]) == VOCABULARY
    assert told["tokenizer.ggml.tokens"][0] != "<|endoftext|>"  # llama.cpp would never sample it


@pytest.mark.parametrize(("role", "heads"), [("q", 4), ("k", 2)])
def test_queries_and_keys_have_llama_cpps_order_of_rows(
    models: Models, role: str, heads: int
) -> None:
    """Row i of a head's first half, then row i of its second half."""
    assert models.gguf is not None
    _, values = read_gguf(models.gguf / TARGET_GGUF)[f"blk.0.attn_{role}.weight"]
    state = unpacked(models.target).state_dict()
    weights = state[f"model.layers.0.self_attn.{role}_proj.weight"].numpy()
    halves = weights.reshape(heads, 2, FAMILIES["llama"]["head_dim"] // 2, -1)
    assert np.abs(values - halves.swapaxes(1, 2).reshape(values.shape)).max() < 0.01


@pytest.mark.parametrize("tied", [True, False])
def test_a_draft_with_the_whole_vocabulary_proposes_what_it_did(tied: bool) -> None:
    draft, vocabulary = trimmed(tied), Vocabulary(IDS)
    whole = with_vocabulary(deepcopy(draft), vocabulary, VOCABULARY)
    tokens = [5, 6, 10, 200, 311, 15]  # 6 and 311 are not among its own
    with torch.inference_mode():
        before = draft(torch.tensor([vocabulary.rows(tokens)])).logits[0]
        after = whole(torch.tensor([tokens])).logits[0]
    assert torch.allclose(after[:, IDS], before, atol=1e-5)
    lacking = np.setdiff1d(np.arange(VOCABULARY), IDS)
    assert torch.allclose(after[:, lacking], before[:, :1], atol=1e-5)
    assert after.argmax(-1).tolist() == IDS[before.argmax(-1)].tolist()


def test_peers_get_a_draft_with_the_whole_vocabulary(models: Models) -> None:
    assert read_config(models.draft).vocabulary is not None
    assert models.full_draft is not None
    config = read_config(models.full_draft)
    assert (config.vocab_size, config.vocabulary) == (VOCABULARY, None)
    assert models.gguf is not None
    _, rows = read_gguf(models.gguf / DRAFT_GGUF)["token_embd.weight"]
    assert len(rows) == VOCABULARY


def test_another_architecture_is_refused(models: Models, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    with pytest.raises(UserError, match="Llama"):
        write_gguf(tmp_path, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()

"""Every engine that runs such a pair, behind one function: a prompt in, N tokens out, greedily.

A peer is imported when its engine is made; GenAI comes from `benchmarks/requirements.txt`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from pipeline.decoding.drafters import DEFAULT_DRAFTER, find_drafter
from pipeline.decoding.drafters.lookup import LOOKUP
from pipeline.decoding.events import Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from pipeline.runtime.model import OVModel
from pipeline.runtime.pair import measure_costs
from pipeline.text.tokenizer import Tokenizer

DRAFT_LENGTH = 4
OURS, OURS_FASTEST = "this project", "this project, fastest"
OURS_SPECULATIVE = "this project, speculative"

OnTokens = Callable[[int], None]  # told how many tokens there are
Answer = Callable[[list[int], int, OnTokens], list[int]]  # prompt, N, ... -> N new tokens


@dataclass(frozen=True, slots=True)
class Models:
    """One pair, as IRs."""

    target: Path
    draft: Path


def ours(
    models: Models,
    drafter: str | None = None,
    draft_length: int | Literal["auto"] = DRAFT_LENGTH,
    lossless: bool = True,
) -> Answer:
    """As `Dolly` does it, without an end key. No drafter: autoregressive."""

    def compiled(folder: Path) -> OVModel:
        model = OVModel(folder, lossless=lossless)
        model.warm_up()
        model.share_prefix(Tokenizer(folder).shared_prefix)
        return model

    target = compiled(models.target)
    lanes = Lanes(target=partial(target.sequence, None))
    if drafter:
        draft = compiled(models.draft) if find_drafter(drafter).draft_model else None
        lanes = replace(lanes, costs=cache(partial(measure_costs, target, draft)))
        if draft:
            lanes = replace(lanes, draft=partial(draft.sequence, None))
        if draft_length == "auto":
            lanes.costs()  # before the first answer, which is timed

    def answer(prompt: list[int], count: int, on_tokens: OnTokens) -> list[int]:
        params = SamplingParams()
        if drafter:
            events = lanes.speculative(prompt, params, count, drafter, draft_length)
        else:
            events = lanes.autoregressive(prompt, params, count)
        made: list[int] = []
        for event in events:
            if isinstance(event, Step):
                made += event.tokens
                on_tokens(len(made))
        return made

    return answer


def genai(models: Models, draft: bool = False, prompt_lookup: bool = False) -> Answer:
    import numpy as np
    import openvino as ov
    import openvino_genai

    options: dict[str, Any] = {}
    config = openvino_genai.GenerationConfig()
    config.ignore_eos, config.do_sample = True, False
    if draft:
        options["draft_model"] = openvino_genai.draft_model(_with_tokenizer(models.draft), "CPU")
        config.num_assistant_tokens = DRAFT_LENGTH
    if prompt_lookup:
        options["prompt_lookup"] = True
        config.num_assistant_tokens, config.max_ngram_size = DRAFT_LENGTH, 4
    pipe = openvino_genai.LLMPipeline(_with_tokenizer(models.target), "CPU", **options)

    def answer(prompt: list[int], count: int, on_tokens: OnTokens) -> list[int]:
        made: list[int] = []

        class Streamer(openvino_genai.StreamerBase):  # type: ignore[misc]
            def write(self, tokens: int | list[int]) -> Any:
                made.extend([tokens] if isinstance(tokens, int) else tokens)
                on_tokens(len(made))
                return openvino_genai.StreamingStatus.RUNNING

            def end(self) -> None:
                pass

        config.max_new_tokens = count
        ids = np.array([prompt], np.int64)
        inputs = openvino_genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        result = pipe.generate(inputs, config, Streamer())
        return list(result.tokens[0])

    return answer


def _with_tokenizer(folder: Path) -> str:
    """The IR beside a tokenizer as GenAI wants one: an IR too, of the same tokenizer."""
    import tempfile

    import openvino as ov
    from openvino_tokenizers import convert_tokenizer
    from transformers import PreTrainedTokenizerFast

    made = Path(tempfile.mkdtemp())
    for file in folder.iterdir():
        (made / file.name).symlink_to(file.resolve())
    fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    for model, name in zip(
        convert_tokenizer(fast, with_detokenizer=True),
        ("openvino_tokenizer.xml", "openvino_detokenizer.xml"),
        strict=True,
    ):
        ov.save_model(model, made / name)
    return str(made)


def transformers(models: Models, kind: str) -> Answer:
    import torch
    from transformers import GenerationConfig
    from transformers.generation.streamers import BaseStreamer

    from benchmarks.unpacked import unpacked

    load: Callable[[Path], Any] = unpacked
    if kind.startswith("optimum"):
        from optimum.intel import OVModelForCausalLM

        load = OVModelForCausalLM.from_pretrained
    target, assisted = load(models.target), {}
    if kind.endswith("assisted"):
        assisted["assistant_model"] = load(models.draft)
        settings = assisted["assistant_model"].generation_config
        settings.num_assistant_tokens = DRAFT_LENGTH
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0

    class Counter(BaseStreamer):  # type: ignore[misc]
        """Told of the prompt first, then of new tokens."""

        def __init__(self, on_tokens: OnTokens) -> None:
            self._count, self._on_tokens = -1, on_tokens

        def put(self, value: torch.Tensor) -> None:
            self._count += 1 if self._count < 0 else value.numel()
            if self._count > 0:
                self._on_tokens(self._count)

        def end(self) -> None:
            pass

    def answer(prompt: list[int], count: int, on_tokens: OnTokens) -> list[int]:
        config = GenerationConfig(
            max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0
        )
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                streamer=None if assisted else Counter(on_tokens),
                **assisted,
            )
        made: list[int] = out[0, len(prompt) :].tolist()
        return made

    return answer


def notebook(models: Models) -> Answer:
    from benchmarks.notebook import StatefulModel, speculate

    target, draft = StatefulModel(models.target), StatefulModel(models.draft)

    def answer(prompt: list[int], count: int, on_tokens: OnTokens) -> list[int]:
        return speculate(target, draft, prompt, count, DRAFT_LENGTH, on_tokens)

    return answer


AUTOREGRESSIVE = (OURS, OURS_FASTEST, "OpenVINO GenAI", "optimum-intel", "transformers")
FIXED_DRAFTS = (OURS_SPECULATIVE, "OpenVINO GenAI, speculative", "notebook 2024")
ENGINES: dict[str, Callable[[Models], Answer]] = {
    OURS: ours,
    OURS_FASTEST: partial(ours, lossless=False),
    OURS_SPECULATIVE: partial(ours, drafter=DEFAULT_DRAFTER),
    "this project, auto": partial(ours, drafter=DEFAULT_DRAFTER, draft_length="auto"),
    "this project, look-up": partial(ours, drafter=LOOKUP.name),
    "OpenVINO GenAI": genai,
    "OpenVINO GenAI, speculative": partial(genai, draft=True),
    "OpenVINO GenAI, prompt lookup": partial(genai, prompt_lookup=True),
    "optimum-intel": partial(transformers, kind="optimum"),
    "optimum-intel, assisted": partial(transformers, kind="optimum, assisted"),
    "transformers": partial(transformers, kind="torch"),
    "transformers, assisted": partial(transformers, kind="torch, assisted"),
    "notebook 2024": notebook,
}

"""The registry of engines that run a pair, each as one function: from a prompt to N tokens.

An engine is imported when it is loaded; GenAI and llama.cpp come with the extra `engines`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx

from lab.engines.models import DRAFT_GGUF, TARGET_GGUF, Models
from pipeline.decoding.drafters import DEFAULT_DRAFTER, find_drafter
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.hybrid import HYBRID
from pipeline.decoding.drafters.lookup import LOOKUP
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import SamplingParams
from pipeline.dolly import Dolly
from pipeline.models.pairs import Model, Pair
from pipeline.request import Request
from pipeline.runtime.weight_files import WHOLE, read_weights, weight_files

DRAFT_LENGTH = 4
_NGRAM = 4  # tokens that must stand before for prompt lookup to copy what followed; GenAI: at most
CONTEXT = 2048  # tokens of a prompt and its answer; the studies ask for no more
OURS, OURS_FASTEST = "this project", "this project, fastest"
OURS_SPECULATIVE = "this project, speculative"

OnTokens = Callable[[int], None]  # receives how many tokens there are


class Answer(Protocol):
    """A pair that an engine has loaded."""

    def __call__(self, prompt: list[int], count: int, on_tokens: OnTokens) -> list[int]:
        """Continues the prompt greedily by `count` tokens, and reports them as they are made."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """
    Attributes:
        load: imports the engine, and loads a pair.
        autoregressive: its other modes, named after it, are compared with this one.
        fixed_drafts: each of its reports is of a round with `DRAFT_LENGTH` drafted tokens.
        reads_gguf: and no IR.
    """

    load: Callable[[Models], Answer]
    autoregressive: bool = False
    fixed_drafts: bool = False
    reads_gguf: bool = False


def ours(
    models: Models,
    drafter: str | None = None,
    draft_length: int | Literal["auto"] = DRAFT_LENGTH,
    lossless: bool = True,
) -> Answer:
    """As `Dolly` does it, without an end key. No drafter: autoregressive."""
    spec = find_drafter(drafter) if drafter else None
    block = models.block if spec and spec.block_draft else None
    draft = Model(str(models.draft)) if spec and spec.draft_model and not block else None
    pair = Pair("any", "", "", Model(str(models.target)), draft, (), block)
    dolly = Dolly(pair, lossless=lossless)
    lanes = replace(dolly.lanes(Request("any")), end_ids=frozenset(), candidates=0)
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
        options["draft_model"] = openvino_genai.draft_model(
            _with_tokenizer(models.full_draft or models.draft), "CPU"
        )
        config.num_assistant_tokens = DRAFT_LENGTH
    if prompt_lookup:
        options["prompt_lookup"] = True
        config.num_assistant_tokens, config.max_ngram_size = DRAFT_LENGTH, _NGRAM
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
    """A folder with the IR and its tokenizer as GenAI reads one, as an IR too."""
    import tempfile

    import openvino as ov
    from openvino_tokenizers import convert_tokenizer
    from transformers import PreTrainedTokenizerFast

    made = Path(tempfile.mkdtemp())
    for file in folder.iterdir():
        (made / file.name).symlink_to(file.resolve())
    if len(parts := weight_files(folder)) > 1:
        read_weights(parts).data.tofile(made / WHOLE)
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

    from lab.engines.unpacked import unpacked

    load: Callable[[Path], Any] = unpacked
    if kind.startswith("optimum"):
        from optimum.intel import OVModelForCausalLM

        load = OVModelForCausalLM.from_pretrained
    target, assisted = load(models.target), {}
    if kind.endswith("assisted"):
        assisted["assistant_model"] = load(models.full_draft or models.draft)
        settings = assisted["assistant_model"].generation_config
        settings.num_assistant_tokens = DRAFT_LENGTH
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0

    class Counter(BaseStreamer):  # type: ignore[misc]
        """Receives the prompt first, then new tokens."""

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


def llama_cpp(models: Models, draft: bool = False, prompt_lookup: bool = False) -> Answer:
    """llama.cpp's server in this process; over HTTP, as its API without HTTP returns no ids."""
    import xllamacpp

    if models.gguf is None:
        raise ValueError("only models of the Llama architecture are written as GGUF files")
    params = xllamacpp.CommonParams()
    params.model.path = str(models.gguf / TARGET_GGUF)
    params.n_ctx, params.n_parallel = CONTEXT, 1
    params.cache_ram_mib = 0  # copies of earlier prompts' caches would only cost time here
    speculative, kinds = params.speculative, xllamacpp.common_speculative_type
    threads = [params.cpuparams, params.cpuparams_batch]
    if draft:
        speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        speculative.draft.mparams.path = str(models.gguf / DRAFT_GGUF)
        speculative.draft.n_max = DRAFT_LENGTH
        threads += [speculative.draft.cpuparams, speculative.draft.cpuparams_batch]
    if prompt_lookup:
        speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        speculative.ngram_simple.size_n, speculative.ngram_simple.size_m = _NGRAM, DRAFT_LENGTH
    for pool in threads:
        pool.n_threads = len(os.sched_getaffinity(0))
    server = xllamacpp.Server(params)

    def answer(prompt: list[int], count: int, on_tokens: OnTokens) -> list[int]:
        asked = {"prompt": prompt, "n_predict": count, "temperature": 0, "top_k": 1}
        asked |= {"ignore_eos": True, "return_tokens": True, "stream": True}
        made: list[int] = []
        url = f"{server.listening_address}/completion"
        with httpx.stream("POST", url, json=asked, timeout=None) as reply:
            for line in reply.iter_lines():
                name, _, event = line.partition(": ")
                if name == "data" and (tokens := json.loads(event)["tokens"]):
                    made += tokens
                    on_tokens(len(made))
        return made

    return answer


def notebook(models: Models) -> Answer:
    from lab.engines.notebook import StatefulModel, speculate

    target = StatefulModel(models.target)
    draft = StatefulModel(models.full_draft or models.draft)

    def answer(prompt: list[int], count: int, on_tokens: OnTokens) -> list[int]:
        return speculate(target, draft, prompt, count, DRAFT_LENGTH, on_tokens)

    return answer


ENGINES: dict[str, Engine] = {
    OURS: Engine(ours, autoregressive=True),
    OURS_FASTEST: Engine(partial(ours, lossless=False), autoregressive=True),
    OURS_SPECULATIVE: Engine(partial(ours, drafter=MODEL.name), fixed_drafts=True),
    "this project, block": Engine(partial(ours, drafter=BLOCK.name)),
    "this project, auto": Engine(partial(ours, drafter=DEFAULT_DRAFTER, draft_length="auto")),
    "this project, hybrid": Engine(partial(ours, drafter=HYBRID.name, draft_length="auto")),
    "this project, look-up": Engine(partial(ours, drafter=LOOKUP.name)),
    "OpenVINO GenAI": Engine(genai, autoregressive=True),
    "OpenVINO GenAI, speculative": Engine(partial(genai, draft=True), fixed_drafts=True),
    "OpenVINO GenAI, prompt lookup": Engine(partial(genai, prompt_lookup=True)),
    "llama.cpp": Engine(llama_cpp, autoregressive=True, reads_gguf=True),
    "llama.cpp, speculative": Engine(partial(llama_cpp, draft=True), reads_gguf=True),
    "llama.cpp, prompt lookup": Engine(partial(llama_cpp, prompt_lookup=True), reads_gguf=True),
    "optimum-intel": Engine(partial(transformers, kind="optimum"), autoregressive=True),
    "optimum-intel, assisted": Engine(partial(transformers, kind="optimum, assisted")),
    "transformers": Engine(partial(transformers, kind="torch"), autoregressive=True),
    "transformers, assisted": Engine(partial(transformers, kind="torch, assisted")),
    "notebook 2024": Engine(notebook, fixed_drafts=True),
}

"""Many texts at once, by OpenVINO GenAI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino as ov

_CACHE_GB = 2  # of keys and values of all texts being written
_AT_ONCE = 64  # texts that are being written


@dataclass(frozen=True, slots=True)
class Writing:
    """How a text goes on.

    Attributes:
        longest: tokens of it.
        ends: tokens that end it, each its last one.
        temperature: 0 takes the most likely token.
    """

    longest: int
    ends: frozenset[int]
    temperature: float = 0.0
    top_p: float = 1.0


Generate = Callable[[Sequence[list[int]], Writing, int], list[list[int]]]


def generator(folder: Path) -> Generate:
    """A function from prompts and a seed to what the model of an IR's folder writes after each."""
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs = _CACHE_GB, _AT_ONCE
    pipe = openvino_genai.ContinuousBatchingPipeline(folder, scheduler, "CPU")

    def generate(prompts: Sequence[list[int]], writing: Writing, seed: int) -> list[list[int]]:
        configs = []
        for index in range(len(prompts)):
            config = openvino_genai.GenerationConfig()
            config.max_new_tokens, config.stop_token_ids = writing.longest, set(writing.ends)
            config.do_sample = writing.temperature > 0
            if config.do_sample:
                config.temperature, config.top_p = writing.temperature, writing.top_p
                config.rng_seed = seed + index
            configs.append(config)
        inputs = [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        return [list(result.m_generation_ids[0]) for result in pipe.generate(inputs, configs)]

    return generate

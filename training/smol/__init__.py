"""The recipe of `dolly-smol`, the next embedded pair: SmolLM2 fine-tuned on Dolly's records."""

"""Drafts for a user's own target, and the next embedded pair: `python -m lab.training --help`.

With `pipeline.convert` the only code that imports torch.
"""

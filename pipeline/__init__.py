"""Dolly v2 on OpenVINO: inference, caches, decoding, the race and its trace.

Importing this package loads neither OpenVINO, torch nor Gradio; each module imports what it uses.
"""

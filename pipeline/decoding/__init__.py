"""Decoding over token ids: sampling, verification, drafters, lanes and the race.

Depends on NumPy and token ids only: no text, no files, no OpenVINO.
"""

"""Decoding over token ids: sampling, verification, drafters, lanes and the race.

Knows numpy and token ids; no text, no files, no OpenVINO.
"""

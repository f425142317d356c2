"""`trace@1`: the one record of a run, how it is made, read and measured.

Knows decoding's events; no models and no tokenizer.
"""

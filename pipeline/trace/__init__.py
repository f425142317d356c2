"""`trace@1`, the record of a run: recording, reader and metrics.

Depends on the events of decoding; not on models or tokenizers.
"""

"""KV cache policies: one module per policy, and their registry.

Importing it does not load OpenVINO, so that the page and the command line can list the policies.
"""

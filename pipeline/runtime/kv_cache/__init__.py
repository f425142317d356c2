"""How the keys and values of a sequence are kept: one file a policy, and their registry.

Importing it loads no OpenVINO, so that the page and the command line can read what there is.
"""

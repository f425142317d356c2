"""How the embedded pair was made: from open data to INT8 IRs.

With `pipeline.convert` the only code that imports torch. `python -m training.<stage>`.
"""

"""The page for many visitors: the folder of a Space, and how many replicas visitors need.

Imports the pipeline alone. Results of benchmarks are read as files.
"""

"""Experiments: one module for each measured question.

    python -m lab --list
    python -m lab NAME

An experiment is a generator that yields its result so far, as plain data, after every event of a
run. So it can be plotted while it runs, and stopped; the page and the command line share the code.
Nothing here imports Gradio, and importing it does not load OpenVINO.
"""

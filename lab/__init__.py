"""The laboratory: what measures the project, and how its models were made.

    python -m lab --list
    python -m lab NAME [options]

A study (`lab.study`) is one file in `lab/studies/`: a question, a generator that yields its result
so far as plain data, and a sentence on what came out. So it can be plotted while it runs, and
stopped; the page and the command line share the code. The registry imports neither Gradio nor
OpenVINO.
"""

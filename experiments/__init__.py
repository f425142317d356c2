"""Questions answered by measuring, one a file.

An experiment yields its result so far as plain data, after every event of a run, so that it can be
shown and stopped: the page and the command line run the same code. Nothing here knows Gradio.
"""

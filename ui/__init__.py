"""The page and its API. Imports Gradio and the pipeline's public types; never OpenVINO."""

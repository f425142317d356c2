"""The page and its API. Knows Gradio and pipeline's public types; never imports OpenVINO."""

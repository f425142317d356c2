"""The page. Knows Gradio and the pipeline's public types; never OpenVINO."""

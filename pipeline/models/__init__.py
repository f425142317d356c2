"""Where models come from: pairs, the hub, conversion, and the folder that keeps models."""

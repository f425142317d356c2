"""Models: the registry of pairs, the hub, conversion, and the folder of converted models."""

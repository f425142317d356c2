"""Models on OpenVINO: compiled weights, their sequences, and how these keep keys and values."""

"""Dolly v2 on OpenVINO: inference, caches, decoding, the race and its trace.

Importing this package loads neither OpenVINO, torch nor Gradio; each module imports what it uses.
"""

import sys

# OpenVINO tells its makers of every import, if it finds this package, and does so from a fork of
# the process: nothing here is to call home, and a fork holds the page's port.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

"""Dolly v2 on OpenVINO: inference, caches, decoding, the race and its trace.

Importing this package loads neither OpenVINO, torch nor Gradio; each module imports what it uses.
"""

import sys

# With this package installed, OpenVINO reports every import to its makers, from a fork of the
# process. Nothing here may call home, and the fork would keep the page's port open.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

"""The tab on the API and on the trace: a text."""

from __future__ import annotations

from ui.tabs.tab import Tab

TAB = Tab(name="api", title="Trace & API", template="api/api.html", scripts=("api/api",))

"""The tab that documents the API and the trace."""

from __future__ import annotations

from ui.tabs.tab import Tab

TAB = Tab(name="api", title="Trace & API", template="api/api.html", scripts=("api/api",))

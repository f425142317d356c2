"""Long-running work of the page: background threads, and the views that follow them."""

"""The tabs below the answers: one file a tab, and the registry of them."""

"""The tabs below the answers: one module per tab, and their registry."""

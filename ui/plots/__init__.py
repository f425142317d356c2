"""What all plots have in common: a plot, its figure, and its table."""

"""What all plots have in common: the figure and its table."""

"""Plots: their figures and tables, common to all tabs."""

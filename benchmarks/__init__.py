"""Measurements behind the project's claims. Each prints a table and saves its results as JSON."""

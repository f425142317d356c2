"""What the claims rest on. Each prints a table for people and one JSON line for machines."""

"""Other inference engines, to compare with."""

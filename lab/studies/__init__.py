"""The studies: one question a file."""

"""A run on the page: started in a thread of its own, followed at a pace, written down as lines."""

"""What takes long on the page: its life in a thread of its own, and what is shown of it."""

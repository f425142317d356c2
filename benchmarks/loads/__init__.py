"""What a server stands: its visitors, its memory, hostile calls and files, broken conversions."""

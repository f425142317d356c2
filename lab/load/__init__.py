"""What a server withstands: visitors, many races, hostile calls and files, broken conversions."""

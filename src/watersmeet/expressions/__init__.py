"""SQL expressions: positions in the text, types, intervals and event times."""

"""SQL expressions: where they stand in the text, their types, intervals and event times."""

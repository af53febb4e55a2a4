"""Tables of databases as sinks."""

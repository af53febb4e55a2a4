"""Tables of PostgreSQL as changing streams: a snapshot, then the changes."""

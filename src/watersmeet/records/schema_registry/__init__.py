"""Records whose schemas a schema registry keeps: its client, the wire format, and the formats it knows."""

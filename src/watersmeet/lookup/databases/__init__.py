"""What each kind of database has of its own: its driver and session, its types, its errors, its upsert."""

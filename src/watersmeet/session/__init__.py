"""The Python API: sessions, statements carried out, results."""

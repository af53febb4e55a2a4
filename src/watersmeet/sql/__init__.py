"""The SQL front end: text to statements (``watersmeet.sql.parse``), with a position for all that can be wrong."""

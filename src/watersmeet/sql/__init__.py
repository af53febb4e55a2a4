"""The SQL front end: parses text into statements (``watersmeet.sql.parse``) and keeps positions for error messages."""

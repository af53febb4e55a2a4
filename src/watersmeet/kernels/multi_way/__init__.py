"""Inner and left joins of three streams and more in one operator."""

"""The REST long poll transport."""

"""Observability: the log, the metrics, and reports of problems."""

"""The source of files: finds, reads and watches a tree."""

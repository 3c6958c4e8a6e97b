"""Compare two trees, revisions or running servers, and print the difference."""

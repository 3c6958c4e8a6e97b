"""Two states of what is served, and the difference between them."""

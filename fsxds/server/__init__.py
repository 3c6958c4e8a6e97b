"""The server: what a change of a file runs through, and the wiring of all components."""

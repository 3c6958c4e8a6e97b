"""The server: the pipeline from file changes to clients, and the wiring of all components."""

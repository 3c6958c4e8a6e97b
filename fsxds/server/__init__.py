"""The server: from file changes to clients, and all components' wiring."""

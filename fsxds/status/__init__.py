"""The status of the server as values, computed on request: clients, versions and problems."""

"""The command line: what is declared in `commands`, and one module for the work of each command."""

"""The command line, declared by `commands`."""

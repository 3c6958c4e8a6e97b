"""The command line: `commands` declares every command, and each command has a module for its work."""

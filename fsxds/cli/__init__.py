"""The command line: `commands` declares every command."""

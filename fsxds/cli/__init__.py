"""The command line: `commands` declares every command, and one module does the work of each."""

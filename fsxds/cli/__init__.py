"""The command line: `commands` declares every command, and imports its module when the command runs."""

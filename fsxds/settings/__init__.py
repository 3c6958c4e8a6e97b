"""The table of options: flags, environment and settings file."""

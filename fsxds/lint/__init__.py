"""The linter: every check of what files say, and its page in `pages/`."""

"""The language server: what editors show of a tree while it is written."""

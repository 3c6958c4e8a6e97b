"""The language server for editors of a tree."""

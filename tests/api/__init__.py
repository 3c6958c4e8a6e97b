"""Tests of the room `api`."""

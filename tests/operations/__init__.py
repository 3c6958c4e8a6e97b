"""Tests of `fsxds.operations`."""

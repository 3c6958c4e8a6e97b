"""Tests of `fsxds.cli`."""

"""Tests of `fsxds.comparison`."""

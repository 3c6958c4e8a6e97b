"""Tests of `fsxds.tools.diff`."""

"""Tests of `fsxds.observe`."""

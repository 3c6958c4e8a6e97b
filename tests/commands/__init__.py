"""Tests of `fsxds.commands`."""

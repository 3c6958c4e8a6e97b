"""Tests of fsxds.formats."""

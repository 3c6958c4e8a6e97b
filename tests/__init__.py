"""Tests of fsxds; the folders mirror the package, file by file."""

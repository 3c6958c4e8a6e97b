"""Tests of the project as a whole: the rules of its code, its pages, its deletions and extensions.

They are not directly in `tests`: setuptools would add them to a source distribution, in which they cannot run.
"""

"""Helpers that several test folders share; on the path through pytest's ``pythonpath``."""

"""Owns the search for a draft's true wiring by measuring: what can be confused is tried on the target's own text.

Only ``target`` and ``evaluate`` import torch and transformers.
"""

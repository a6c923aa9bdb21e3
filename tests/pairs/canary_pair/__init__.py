"""How the small target and its EAGLE-3 canary draft under ``tests/pairs`` are trained and measured."""

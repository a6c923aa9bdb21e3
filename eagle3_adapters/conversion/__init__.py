"""Owns writing a checkpoint from the bytes of another: what each tensor is made of, and the directory as a whole."""

"""Draft classes of ours: subclasses of SGLang's own for drafts that those would serve with other math.

Importing this imports neither torch nor SGLang; :mod:`adapted` does, in the process that loads such a draft.
"""

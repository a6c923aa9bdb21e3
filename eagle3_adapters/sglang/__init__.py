"""The only part of the package that touches SGLang: flags, the parent seam, and what happens in its child processes."""

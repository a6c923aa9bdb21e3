"""The decisions, without torch or SGLang: (target, adapter, format reading) -> wiring plan and findings."""

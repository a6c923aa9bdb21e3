"""The wiring of a target and a draft, proved by the real SGLang engine on a CPU."""

"""``python -m eagle3_adapters.rehearsal ARGUMENTS``: ``sglang.launch_server ARGUMENTS`` on this machine's CPU.

To try a wiring without a GPU: small models only, since the reference kernels are plain PyTorch. Arguments of SGLang
given here beat the CPU defaults.
"""

from __future__ import annotations

import os
import sys

from eagle3_adapters.rehearsal.engine import cpu_command_line, cpu_environment


def main() -> None:
    """Replace this process by the server."""
    defaults = cpu_command_line(skip_tokenizer_init=False)
    command = [sys.executable, "-m", "sglang.launch_server", *defaults, *sys.argv[1:]]
    os.execve(sys.executable, command, cpu_environment())  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()

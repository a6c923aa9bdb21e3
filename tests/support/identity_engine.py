"""An engine that serves a scripted mix of requests while tests/support/recorder writes down every captured state.

Run as a program in a process of its own (see serve.py); it prints nothing and writes each request's tokens as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from eagle3_adapters.rehearsal.engine import cpu_engine
from support.random_targets import VOCABULARY

#: Tokens of a prompt that are worked off at once: longer prompts cross a border.
CHUNK = 32
#: Request -> prompt length of the first, ragged batch.
RAGGED = {"short": 5, "middle": 21, "long": 83}
NEW_TOKENS = 20
#: Of the longest answer that ends by itself.
MOST = 40
#: After how many tokens a request is given up.
DOOM = 10


def tokens(length: int, seed: int) -> list[int]:
    """A prompt of random tokens, without the last two, which mean something."""
    generator = random.Random(seed)  # noqa: S311 - prompts, not secrets
    return [generator.randrange(1, VOCABULARY - 2) for _ in range(length)]


def known_prompts() -> dict[str, list[int]]:
    """Request -> prompt, of all but the one that goes on from another's answer."""
    ragged = {name: tokens(length, seed) for seed, (name, length) in enumerate(RAGGED.items())}
    fork = [*ragged["long"][:60], *tokens(9, 7)]
    return ragged | {"fork": fork, "doomed": tokens(40, 11), "beside": tokens(17, 12), "after": tokens(50, 13)}


async def script(engine: Any) -> dict[str, dict[str, Any]]:
    """Request -> prompt, answer, how much of the prompt came from the prefix cache."""
    done: dict[str, dict[str, Any]] = {}
    prompt_of = known_prompts()

    def keep(name: str, prompt: list[int], answer: Any) -> None:
        facts = answer["meta_info"]
        done[name] = {
            "prompt": prompt,
            "output": answer["output_ids"],
            "cached": facts["cached_tokens"],
            "verifies": facts["spec_verify_ct"],
            "accepted": facts["spec_num_correct_drafts"],
        }

    async def ask(prompts: dict[str, list[int]], new_tokens: int = NEW_TOKENS) -> None:
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}
        answers = await engine.async_generate(
            input_ids=list(prompts.values()), sampling_params=sampling, rid=list(prompts)
        )
        for (name, prompt), answer in zip(prompts.items(), answers, strict=True):
            keep(name, prompt, answer)

    async def give_up(name: str, prompt: list[int]) -> None:
        sampling = {"temperature": 0, "max_new_tokens": 300, "ignore_eos": True}
        answers = await engine.async_generate(input_ids=prompt, sampling_params=sampling, rid=name, stream=True)
        async for answer in answers:
            if len(answer["output_ids"]) > DOOM:
                engine.tokenizer_manager.abort_request(rid=name)
        keep(name, prompt, answer)

    await ask({name: prompt_of[name] for name in RAGGED})
    # The same beginning again, and a fork in the middle of it: served from the prefix cache.
    await ask({"again": [*prompt_of["long"], *done["long"]["output"][:7]], "fork": prompt_of["fork"]})
    # One request is given up while another runs beside it.
    beside = ask({"beside": prompt_of["beside"]}, new_tokens=MOST)
    await asyncio.gather(give_up("doomed", prompt_of["doomed"]), beside)
    await asyncio.sleep(1.5)
    await ask({"after": prompt_of["after"]})
    return done


def main() -> None:
    """``python -m support.identity_engine ARGUMENTS OUTPUT``."""
    arguments, output = json.loads(sys.argv[1]), Path(sys.argv[2])
    settings = {"chunked_prefill_size": CHUNK, "max_running_requests": 8, "log_level": "info", **arguments}
    with cpu_engine(**settings) as engine:
        answers = engine.loop.run_until_complete(script(engine))
    output.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    # As in serve.py: sockets of the engine would keep the interpreter waiting.
    os._exit(0)

#!/usr/bin/env python3
"""What rewriting a draft of 0.85 GB costs beside ``cp -r``, which neither compares nor waits for the disk.

And beside what a script would do: load with torch, rename, save.

Every round runs all ways one after the other on the same disk, each in a process of its own; medians of the rounds.
Prints a table and build/convert.json. ``--work DIR`` says on which disk; 2.6 GB are needed there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import rich.console
import rich.table

from eagle3_adapters.checkpoint import read_tensors
from eagle3_adapters.conversion.layout import OutputFile, header_of
from eagle3_adapters.conversion.pieces import Columns, Copy, Made, OutputTensor
from eagle3_adapters.conversion.writer import write_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 11
NAME = "model.safetensors"
#: A one-layer draft of hidden size 4096 with a draft vocabulary of 32,000: 0.85 GB.
HIDDEN, INNER, KEYS, VOCAB, TARGET_VOCAB = 4096, 14336, 1024, 32_000, 128_256
SHAPES = {
    "fc.weight": (HIDDEN, 3 * HIDDEN),
    "midlayer.self_attn.q_proj.weight": (HIDDEN, 2 * HIDDEN),
    "midlayer.self_attn.k_proj.weight": (KEYS, 2 * HIDDEN),
    "midlayer.self_attn.v_proj.weight": (KEYS, 2 * HIDDEN),
    "midlayer.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    "midlayer.mlp.gate_proj.weight": (INNER, HIDDEN),
    "midlayer.mlp.up_proj.weight": (INNER, HIDDEN),
    "midlayer.mlp.down_proj.weight": (HIDDEN, INNER),
    "midlayer.hidden_norm.weight": (HIDDEN,),
    "midlayer.input_layernorm.weight": (HIDDEN,),
    "midlayer.post_attention_layernorm.weight": (HIDDEN,),
    "norm.weight": (HIDDEN,),
    "lm_head.weight": (VOCAB, HIDDEN),
}


def write_source(directory: Path) -> None:
    """A draft of random bytes, so that nothing on the way can share or compress them."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"]}))
    small = Made(data=bytes(8 * VOCAB))
    maps = (OutputTensor(name="d2t", dtype="I64", shape=(VOCAB,), content=small),)
    header = json.loads(header_of(OutputFile(name=NAME, tensors=maps))[8:])
    offset = small.size
    for name, shape in SHAPES.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with (directory / NAME).open("wb") as stream:
        stream.write(len(encoded).to_bytes(8, "little") + encoded + small.data)
        for start in range(small.size, offset, 1 << 20):
            stream.write(os.urandom(min(1 << 20, offset - start)))
        os.fsync(stream.fileno())


def outputs(source: Path, order: tuple[int, ...]) -> Iterator[OutputTensor]:
    """All tensors under other names; ``fc`` with its states in ``order``."""
    for name, one in read_tensors(source).items():
        content = Columns(tensor=one, order=order) if name == "fc.weight" and order else Copy(tensor=one)
        new = name.replace("midlayer.", "layers.0.")
        yield OutputTensor(name=new, dtype=one.dtype, shape=one.shape, content=content)


def convert(source: Path, output: Path, order: tuple[int, ...]) -> None:
    """One rewrite, as ``convert`` does it; prints its seconds and the peak of its memory in bytes."""
    start = time.perf_counter()
    files = [OutputFile(name=NAME, tensors=tuple(outputs(source, order)))]
    texts = {"config.json": (source / "config.json").read_bytes()}
    write_checkpoint(output, files, texts, force=False, progress=lambda count: None)
    seconds = time.perf_counter() - start
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "peak": 1024 * int(peak.split()[1])}))


#: The same renames by torch, in a process that imports nothing of ours; its clock starts after the imports.
BY_TORCH = """
import json, pathlib, resource, shutil, sys, time
import safetensors.torch as st
source, output = map(pathlib.Path, sys.argv[1:])
start = time.perf_counter()
output.mkdir()
shutil.copy(source / "config.json", output)
tensors = st.load_file(source / "model.safetensors")
named = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
st.save_file(named, output / "model.safetensors")
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
#: Way -> least share of cp's throughput.
GOALS = {"rewrite, renames only": 0.8, "rewrite, fc reordered": 0.7}
MEMORY = 150_000_000


@attrs.frozen
class Run:
    """What one way took once: of its own clock, as a whole process, and bytes of memory."""

    seconds: float
    process: float
    peak: int = 0


def run_copy(source: Path, output: Path, *, sync: bool) -> Run:
    start = time.perf_counter()
    subprocess.run(["cp", "-r", str(source), str(output)], check=True)
    if sync:
        subprocess.run(["sync", *map(str, output.iterdir()), str(output)], check=True)
    seconds = time.perf_counter() - start
    return Run(seconds, seconds)


def run_python(*words: str) -> Run:
    command = [sys.executable, *words]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    process = time.perf_counter() - start
    return Run(process=process, **json.loads(done.stdout))


def measure(ways: dict[str, Callable[[Path], Run]], work: Path) -> dict[str, list[Run]]:
    """A round to warm up, then the others, each in another order; a way begins where nothing is left to write."""
    runs: dict[str, list[Run]] = {what: [] for what in ways}
    order = list(ways)
    for number in range(1 + ROUNDS):
        for what in order:
            os.sync()
            run = ways[what](work / "out")
            shutil.rmtree(work / "out")
            if number:
                runs[what].append(run)
        random.Random(number).shuffle(order)  # noqa: S311 - an order, not a secret
    return runs


def report(runs: dict[str, list[Run]], size: int) -> None:
    """Medians, and the ratio of throughputs to both peers."""
    table = rich.table.Table("what", "s", "range", "process s", "GB/s", "of cp", "of cp + sync", "peak MB", box=None)
    median = {what: statistics.median(run.seconds for run in some) for what, some in runs.items()}
    plain, synced = (median[what] for what in list(runs)[:2])
    record = []
    for what, some in runs.items():
        seconds, peak = median[what], max(run.peak for run in some)
        table.add_row(
            what,
            f"{seconds:.2f}",
            f"{min(run.seconds for run in some):.2f}-{max(run.seconds for run in some):.2f}",
            f"{statistics.median(run.process for run in some):.2f}",
            f"{size / seconds / 1e9:.2f}",
            f"{plain / seconds:.2f}",
            f"{synced / seconds:.2f}",
            f"{peak / 1e6:.0f}" if peak else "",
        )
        record.append({"what": what, "seconds": [run.seconds for run in some], "size": size, "peak": peak})
    rich.console.Console(width=120).print(table)
    for what, share in GOALS.items():
        met = plain / median[what] >= share and max(run.peak for run in runs[what]) <= MEMORY
        print(f"{what}: goal {share} of cp, at most {MEMORY / 1e6:.0f} MB: {'met' if met else 'MISSED'}")
    output = ROOT / "build" / "convert.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=ROOT / "build", help="a directory on the disk to measure")
    parser.add_argument("--convert", nargs=3, metavar=("SOURCE", "OUT", "ORDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.convert:
        source, output, order = arguments.convert
        convert(Path(source), Path(output), tuple(map(int, order)))
        return
    arguments.work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.work) as directory:
        work = Path(directory)
        source = work / "source"
        write_source(source)
        ways: dict[str, Callable[[Path], Run]] = {
            "cp -r": lambda output: run_copy(source, output, sync=False),
            "cp -r, then sync": lambda output: run_copy(source, output, sync=True),
            "rewrite, renames only": lambda output: run_python(__file__, "--convert", str(source), str(output), ""),
            "rewrite, fc reordered": lambda output: run_python(__file__, "--convert", str(source), str(output), "201"),
            "torch load and save": lambda output: run_python("-c", BY_TORCH, str(source), str(output)),
        }
        report(measure(ways, work), sum(file.stat().st_size for file in source.iterdir()))


if __name__ == "__main__":
    main()

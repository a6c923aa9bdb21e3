"""Explains the findings about files: what cannot be read, and what is not opened."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="config-unreadable",
        title="config.json is absent, damaged or lacks a needed value",
        severity="E",
        meaning="The file is not a JSON object, or a field that the classes are built from is missing or of the wrong "
        "kind. No default is put in its place, since a wrong size or epsilon would be served in silence.",
        writers=("interrupted downloads", "configs edited by hand", "exports that leave out rms_norm_eps or sizes"),
        fix="Download the checkpoint again, or write the field that the finding names as the training run had it:\n"
        '    "rms_norm_eps": 1e-05',
        example='{"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096}\n(no num_attention_heads)',
    ),
    Explanation(
        code="checkpoint-unreadable",
        title="The weights or the named checkpoint cannot be read",
        severity="E",
        meaning="A safetensors header does not parse, a file ends before its last tensor, an index is malformed, a map "
        "is not of integers, or a name is neither a directory nor found on the Hub.",
        writers=("downloads or copies that were cut off", "Git LFS pointers in place of files"),
        fix="Fetch the checkpoint again and compare the sizes of its files:\n"
        "    huggingface-cli download ORGANISATION/DRAFT --local-dir DIR",
        example="model.safetensors: the header gives a tensor bytes 0..33554432; the file has 1048576",
    ),
    Explanation(
        code="shard-missing",
        title="The index names a weight file that is not there",
        severity="E",
        meaning="model.safetensors.index.json lists a shard that the directory lacks, so some tensors would never "
        "arrive.",
        writers=("partial downloads", "indexes left over from another export"),
        fix="Download the named file, or delete the index where one model.safetensors holds every tensor:\n"
        "    rm DIR/model.safetensors.index.json",
        example='{"weight_map": {"fc.weight": "model-00002-of-00002.safetensors"}}\n'
        "(only model-00001 is in the directory)",
    ),
    Explanation(
        code="shard-escape",
        title="A weight file lies outside the checkpoint directory",
        severity="E",
        meaning="An index entry is a path instead of a plain file name, or a link leads elsewhere. Such a file is not "
        "opened; links into the blobs of the same Hub snapshot are the one exception.",
        writers=("directories put together with symbolic links",),
        fix="Put the file itself into the checkpoint:\n    cp --remove-destination $(readlink -f DIR/FILE) DIR/FILE",
        example='{"weight_map": {"fc.weight": "../other/model.safetensors"}}',
    ),
    Explanation(
        code="pickle-refused",
        title="Only pickled weights (.bin, .pt, .pth) are there",
        severity="E",
        meaning="Loading a pickle can run any code that its writer chose. This package reads safetensors and nothing "
        "else.",
        writers=("exports that save pytorch_model.bin",),
        fix="Convert once, in a place where you trust the file:\n"
        '    python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for k, v in '
        "torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\"",
        example="DRAFT/config.json\nDRAFT/pytorch_model.bin",
    ),
    Explanation(
        code="draft-is-target",
        title="The draft's path is the target's, or none is given",
        severity="E",
        meaning="SGLang would load the whole target a second time where a one-layer head belongs. With several target "
        "classes it puts the target's path in place of a missing draft path by itself.",
        writers=("start scripts without --speculative-draft-model-path",),
        fix="Name the draft:\n    --speculative-draft-model-path DRAFT",
        example="--model-path meta-llama/Llama-3.1-8B-Instruct \\\n"
        "--speculative-draft-model-path meta-llama/Llama-3.1-8B-Instruct",
    ),
)

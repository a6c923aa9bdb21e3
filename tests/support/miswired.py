"""A trained draft exported wrongly, in every way that an export goes wrong, and the advice that mends it."""

from __future__ import annotations

import collections
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import load_file, save_file

from eagle3_adapters.diagnosis.advice import Advice
from eagle3_adapters.pair import Request

Files = tuple[dict[str, Any], dict[str, torch.Tensor]]
Plant = Callable[[dict[str, Any], dict[str, torch.Tensor]], Files]
#: Tokens of the smaller vocabulary.
KEPT = 160
IDS, LAYER = "eagle_aux_hidden_state_layer_ids", "transformer_layer_config"


@attrs.frozen(kw_only=True)
class Planted:
    """One wrong export: what became of config.json and tensors."""

    name: str
    plant: Plant
    #: Boundary of each column block as the result was trained; None: as the pair's own.
    order: tuple[int, ...] | None = None
    #: The right export of the same tensors, where they are not the pair's own any more.
    right: Plant | None = None
    #: The files leave it open rather than say something wrong.
    open: bool = False


def read(draft: Path) -> Files:
    return json.loads((draft / "config.json").read_text(encoding="utf-8")), load_file(draft / "model.safetensors")


def write(output: Path, files: Files) -> Path:
    output.mkdir(parents=True)
    (output / "config.json").write_text(json.dumps(files[0]), encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in files[1].items()}, output / "model.safetensors")
    return output


def apply(advice: Advice, request: Request) -> Request:
    """Edit the draft's files as advised, and ask with the option advised."""
    draft = Path(request.draft)
    config, tensors = read(draft)
    for edit in advice.edits:
        place = config
        for key in edit.path[:-1]:
            place = place.setdefault(key, {})
        if edit.value is None:
            del place[edit.path[-1]]
        else:
            place[edit.path[-1]] = edit.value
    if advice.encoding is not None:
        shift = torch.arange(len(tensors["d2t"])) if advice.encoding.value == "offset" else 0
        tensors["t2d"] = mask(tensors["d2t"] + shift, config)
    (draft / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, draft / "model.safetensors")
    return request if advice.boundaries is None else attrs.evolve(request, boundaries=advice.boundaries)


def mask(ids: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    chosen = torch.zeros(config.get(LAYER, config)["vocab_size"], dtype=torch.bool)
    chosen[ids] = True
    return chosen


# What becomes of speculators' own files.


def changed(**fields: Any) -> Plant:
    return lambda config, tensors: (config | fields, tensors)


def without(*keys: str) -> Plant:
    return lambda config, tensors: ({key: value for key, value in config.items() if key not in keys}, tensors)


def rope(theta: float, *, nested: bool = True, top: bool = True) -> Plant:
    def plant(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Files:
        layer = dict(config[LAYER])
        if nested:
            layer["rope_parameters"] = {**layer["rope_parameters"], "rope_theta": theta}
        else:
            del layer["rope_parameters"]
        if top:
            layer["rope_theta"] = theta
        else:
            del layer["rope_theta"]
        return config | {LAYER: layer}, tensors

    return plant


def reordered(own: Sequence[int], order: Sequence[int]) -> Plant:
    """Trained on the states in another order than the file's ids say."""

    def plant(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Files:
        blocks = tensors["fc.weight"].chunk(len(own), dim=1)
        return config, tensors | {"fc.weight": torch.cat([blocks[list(own).index(k)] for k in order], dim=1)}

    return plant


def both_ways(said: Sequence[int], *, absolute: bool, decided: bool) -> Plant:
    """A vocabulary of the tokens that are said most, in an order in which ``d2t`` is a map in both encodings."""

    def plant(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Files:
        ids = (tensors["d2t"] + torch.arange(len(tensors["d2t"]))).tolist()
        held = [token for token, _ in collections.Counter(said).most_common() if token in ids]
        # Ascending ids stay distinct with their places added, and in range where they are not too high.
        low = [token for token in held if token < config[LAYER]["vocab_size"] - KEPT]
        kept = torch.tensor(sorted(low[:KEPT]) if absolute else spread(held[:KEPT]))
        rows = torch.tensor([ids.index(token) for token in kept.tolist()])
        told = kept if absolute else kept - torch.arange(len(kept))
        found = tensors | {"lm_head.weight": tensors["lm_head.weight"][rows], "d2t": told, "t2d": mask(kept, config)}
        if not decided:
            del found["t2d"]
        return config | {"draft_vocab_size": len(kept)}, found

    return plant


def spread(ids: Sequence[int]) -> list[int]:
    """The ids in an order in which no two are equally far above their place, and none below it."""
    for seed in range(100):
        drawn, order, far = random.Random(seed), dict[int, int](), set[int]()  # noqa: S311 - no secret
        for token in sorted(ids):
            places = [k for k in range(len(ids)) if k <= token and k not in order and token - k not in far]
            if not places:
                break
            place = drawn.choice(places)
            order[place] = token
            far.add(token - place)
        else:
            return [order[place] for place in range(len(ids))]
    raise AssertionError("no such order found")


def both(first: Plant, second: Plant) -> Plant:
    return lambda config, tensors: second(*first(config, tensors))


# Other dialects of the same draft.


def flat(ids: Sequence[int], section: dict[str, Any] | None = None, **fields: Any) -> Plant:
    """SGLang's dialect, or ModelOpt's where ``section`` has its marks."""

    def plant(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Files:
        own = config[LAYER] | {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": config["draft_vocab_size"],
            "eagle_config": {IDS: list(ids), **(section or {})},
        }
        renamed = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()}
        return own | fields, renamed

    return plant


MARKS = {"use_input_layernorm_in_first_layer": True, "use_last_layernorm": True, "use_mtp_layernorm": False}


def normed_twice(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Files:
    """The same draft as one that norms its hidden state twice.

    input_layernorm becomes a pattern of signs, after which a second norm is the same norm: its own weights move into
    the projections' columns that read the embedding, and the signs into hidden_norm.
    """
    generator = torch.Generator().manual_seed(0)
    norm, layer = tensors["layers.0.input_layernorm.weight"].float(), "layers.0.self_attn"
    signs = torch.randint(0, 2, norm.shape, generator=generator) * 2.0 - 1.0
    found = dict(tensors)
    found["layers.0.input_layernorm.weight"] = signs
    found["layers.0.hidden_norm.weight"] = tensors["layers.0.hidden_norm.weight"].float() * signs
    for name in (f"{layer}.{one}_proj.weight" for one in "qkv"):
        weight = tensors[name].float()
        weight[:, : len(norm)] *= norm * signs
        found[name] = weight
    return config, found


def planted(own: tuple[int, int, int], said: Sequence[int], *, llama: bool) -> Iterator[Planted]:
    """Every wrong export of a pair that reads the boundaries ``own``, whose target has ``said`` these tokens."""
    first, second, third = own
    for ids in (
        (first + 1, second + 1, third + 1),
        (first, second + 1, third + 1),
        (first, second - 1, third - 1),
        (first + 1, second, third),
        (first, second + 1, third),
        (first, second - 1, third),
        (first, second, third + 1),
        (first, second, third - 1),
        (first + 1, second + 1, third),
        (first, second - 1, third + 1),
    ):
        yield Planted(name=f"ids {list(ids)}", plant=changed(**{IDS: list(ids)}))
    for order in (
        (first, third, second),
        (second, first, third),
        (second, third, first),
        (third, first, second),
        (third, second, first),
    ):
        yield Planted(name=f"columns {list(order)}", plant=reordered(own, order), order=order)
    yield Planted(name="norm_output", plant=changed(norm_output=True))
    yield Planted(name="norm_before_residual", plant=changed(norm_before_residual=True))
    yield Planted(name="norm_before_residual unsaid", plant=without("norm_before_residual"), open=True)
    yield Planted(name="rope 500000", plant=rope(5e5))
    yield Planted(name="rope 1000000, flat", plant=rope(1e6, nested=False))
    yield Planted(name="rope 1000000, nested", plant=rope(1e6, top=False))
    yield Planted(name="version 0.4", plant=changed(speculators_version="0.4.0"), open=True)
    shifted = changed(**{IDS: [k + 1 for k in own]})
    yield Planted(name="ids and norm_output", plant=both(shifted, changed(norm_output=True)))
    for absolute in (False, True):
        yield Planted(
            name=f"d2t of {'target ids' if absolute else 'offsets'} without t2d",
            plant=both_ways(said, absolute=absolute, decided=False),
            right=both_ways(said, absolute=absolute, decided=True),
            open=not absolute,
        )
    if llama:
        yield Planted(name="ids copied from speculators into SGLang's dialect", plant=flat(own))
        outputs = [k - 1 for k in own]
        yield Planted(name="norm_output in SGLang's dialect", plant=flat(outputs, norm_output=True))
        later = MARKS | {"next_layer_regular": True}
        yield Planted(name="double norm declared", plant=flat(outputs, later))
        yield Planted(name="double norm undeclared", plant=both(normed_twice, flat(outputs, MARKS)))

"""Owns what a loaded target of SGLang looks like from outside: its places, and its modules' arguments and results.

With the versions in which each holds. Importing this module imports no part of SGLang.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from eagle3_adapters.values import CaptureSite


def at(root: Any, path: str) -> Any:
    """The object at a dotted path; the empty path is ``root`` itself. Raises AttributeError naming the whole path."""
    found = root
    for part in filter(None, path.split(".")):
        if not hasattr(found, part):
            message = f"{type(root).__name__} has no {path!r} ({type(found).__name__} lacks {part!r})"
            raise AttributeError(message)
        found = getattr(found, part)
    return found


def assign_capture(model: Any, site: CaptureSite, boundaries: tuple[int, ...]) -> None:
    """Make a loaded target capture exactly ``boundaries``, whatever its setter did before."""
    body = at(model, site.body)
    layers = at(body, site.layers)
    if site.capture_list:
        at(body, site.capture_list)
        setattr(body, site.capture_list, list(boundaries))
    if site.layer_flag:
        for number, layer in enumerate(layers):
            setattr(layer, site.layer_flag, number in boundaries)
    for path in site.capture_flags:
        owner = at(model, path)
        at(owner, "capture_aux_hidden_states")
        owner.capture_aux_hidden_states = True


#: Module of SGLang's that keeps the residual stream of a batch, 0.5.21 to 0.5.23. Not every class uses it.
STREAM = "sglang.srt.layers.layer_boundary.residual.batch"
#: Attribute of a tensor that owes a sum over ranks, 0.5.17 to 0.5.20.
OWES = "_sglang_needs_allreduce_fusion"

Call = tuple[tuple[Any, ...], dict[str, Any]]


def _argument(module: Any, name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """How to take one argument from a call of a module's forward; None where it is left out.

    What is returned looks nothing up, so that torch.compile can trace it.
    """
    place = list(inspect.signature(module.forward).parameters).index(name)
    return lambda args, kwargs: args[place] if len(args) > place else kwargs.get(name)


def residual_stream(layer: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """How to take the residual stream from a call of a decoder layer: [tokens, hidden], a tensor of its own.

    From 0.5.21 on the migrated classes (Llama's and a few more from 0.5.22) keep the stream in the batch, whose
    snapshot comes reduced over ranks. The others, and all before, hand their layers a residual; a sum over ranks that
    SGLang means to fuse into the layer's norm is made here then (up to 0.5.20: those that hand on a residual later
    make their sums at once).
    """
    hidden_of = _argument(layer, "hidden_states")
    if "residual" not in inspect.signature(layer.forward).parameters:
        batch_of = _argument(layer, "forward_batch")
        batch = importlib.import_module(STREAM)
        return lambda args, kwargs: batch.snapshot(hidden_of(args, kwargs), batch_of(args, kwargs))
    residual_of = _argument(layer, "residual")

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        hidden, residual = hidden_of(args, kwargs), residual_of(args, kwargs)
        if residual is None:
            return hidden.clone()
        if getattr(hidden, OWES, False):
            distributed = importlib.import_module("sglang.srt.distributed")
            hidden = distributed.tensor_model_parallel_all_reduce(hidden.clone())
        return hidden + residual

    return read


def before_norm(args: tuple[Any, ...]) -> Any:
    """The residual stream that enters the final norm, by that call's arguments: [tokens, hidden], a tensor of its own.

    0.5.17 to 0.5.23: called by position with the last layer's output, reduced over ranks, and the residual to add.
    """
    hidden, residual = args[0], args[1] if len(args) > 1 else None
    return hidden.clone() if residual is None else hidden + residual


def normed_stream(args: tuple[Any, ...], output: Any) -> Any:
    """The same stream as the final norm itself summed it up, from what it returned: borrowed storage.

    0.5.17 to 0.5.23: (normed, updated residual), or the normed state alone where nothing was to be added.
    """
    return output[1] if isinstance(output, tuple) else args[0]


def with_states(output: Any, inner: list[Any], last: Any, cat: Callable[..., Any]) -> Any:
    """What a body returned, with more states before and one after those that it captured; None stands for none.

    0.5.17 to 0.5.23: ``hidden`` where the body captured nothing, else ``(hidden, states)`` with one packed tensor
    [tokens, K*hidden] (DeepSeek's classes) or a list of K. The states are of that kind again. ``cat``: torch.cat.
    """
    hidden, states = output if isinstance(output, tuple) else (output, [])
    if isinstance(states, list):
        # A clone, since a list keeps what it is given and the norm's storage is borrowed.
        after = [] if last is None else [last.clone()]
        return hidden, type(states)([*inner, *states, *after])
    return hidden, cat([*inner, states, *([] if last is None else [last])], dim=-1)


def split_states(forward: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Call]:
    """How to hand a body's (hidden, states), which stand for hidden in a call of ``forward``, to their own parameters.

    ``forward`` is LogitsProcessor's, 0.5.17 to 0.5.23.
    """
    place = list(inspect.signature(forward).parameters).index("hidden_states")

    def split(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        given = args[place] if len(args) > place else kwargs["hidden_states"]
        if not isinstance(given, tuple):
            return args, kwargs
        hidden, states = given
        if len(args) > place:
            return (*args[:place], hidden, *args[place + 1 :]), {**kwargs, "aux_hidden_states": states}
        return args, {**kwargs, "hidden_states": hidden, "aux_hidden_states": states}

    return split


#: How SGLang tells a target which states to capture, and asks it for what the draft shares.
SETTER, SHARED = "set_eagle3_layers_to_capture", "get_embed_and_head"


def supply_methods(model: Any, embedding: str, head: str) -> None:
    """Give a loaded target what SGLang asks every target of an EAGLE-3 draft for.

    A setter that sets nothing: :func:`assign_capture` follows it, and a class's own reads ids by a rule of its own or
    fails on boundaries that are injected. Where the class does not hand them out, the embedding's and the head's
    weights as they are on this rank. ``embedding`` and ``head`` are dotted paths. AttributeError where one is missing.
    """
    setattr(model, SETTER, lambda layer_ids=None: None)
    if not hasattr(model, SHARED):
        shared = at(model, embedding), at(model, head)
        setattr(model, SHARED, lambda: tuple(module.weight for module in shared))


def is_idle(body: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Of a call of a body's forward: whether the batch only keeps other ranks company. The norm is skipped then."""
    batch = inspect.signature(type(body).forward).bind(body, *args, **kwargs).arguments["forward_batch"]
    return bool(batch.forward_mode.is_idle())


def captured_states(processor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a target hands to its LogitsProcessor as captured states: a tensor [tokens, K*hidden], a list, or None."""
    bound = inspect.signature(processor.forward).bind(*args, **kwargs).arguments
    return bound.get("aux_hidden_states")

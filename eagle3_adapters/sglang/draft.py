"""Owns the draft in a child process: which class serves it, and that its weights land exactly as planned."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from eagle3_adapters.draft_classes import EMBEDDING, EMBEDDING_REMEDY
from eagle3_adapters.embedding import differing_rows
from eagle3_adapters.sglang import compat, overlay
from eagle3_adapters.sglang.refuse import refused
from eagle3_adapters.vocab import VocabEncoding
from eagle3_adapters.wiring import TensorRoute, WiringPlan

if TYPE_CHECKING:
    import torch

    Weights = Iterable[tuple[str, torch.Tensor]]


def around_config_draft_model(original: Callable[..., Any], config: Any) -> Any:
    """AROUND ModelConfig._config_draft_model: the private architecture becomes the class that serves the draft.

    SGLang decides latent attention and quantisation by that string right after this call. Overrides that were meant for
    the target (``--json-model-override-args`` reaches both models) are taken back.
    """
    hf_config = config.hf_config
    marker = getattr(hf_config, overlay.KEY, None)
    if marker is not None and config.is_draft_model:
        planned = marker["config"]
        if config.model_override_args:
            # Field by field would not do: transformers derives rotary settings from each other. In place, since SGLang
            # holds the text part as an object of its own.
            fresh = type(hf_config).from_dict(copy.deepcopy(planned))
            setattr(fresh, overlay.KEY, marker)
            vars(hf_config).clear()
            vars(hf_config).update(vars(fresh))
        hf_config.architectures = list(planned["architectures"])
    return original(config)


class DraftLoader:
    """Streams a draft's tensors through the plan's routes and accounts for every tensor and every parameter."""

    def __init__(self, plan: WiringPlan) -> None:
        self._plan = plan
        self._routes = {route.source: route for route in plan.routes}
        #: Models that were loaded once: later weight updates may bring a part of the tensors.
        self._loaded: weakref.WeakSet[Any] = weakref.WeakSet()
        #: The draft's own embedding, kept until it has been compared with the target's.
        self._own_embedding: torch.Tensor | None = None

    def around_load_weights(self, original: Callable[..., Any], model: Any, weights: Weights) -> Any:
        """AROUND the draft class's load_weights. Raises WiringRefusedError."""
        if type(model).__name__ != self._plan.draft_class:
            return original(model, weights)
        first = model not in self._loaded
        if first:
            poison(model)
        seen: set[str] = set()
        result = original(model, self.stream(weights, seen))
        if first:
            self._account(model, seen)
            self._loaded.add(model)
            if self._own_embedding is not None:
                self._compare_when_shared(model, self._own_embedding)
        self._own_embedding = None
        return result

    def stream(self, weights: Weights, seen: set[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Planned names and transformed tensors; ``seen`` collects the file's names."""
        for name, tensor in weights:
            route = self._routes.get(name)
            if route is None:
                raise refused(
                    "weight-unmapped",
                    f"{self._plan.draft_path}: {name}",
                    "a tensor that the plan knows",
                    f"shape {list(tensor.shape)}",
                    why="the checkpoint changed since the start, or an update of the target reached the draft too",
                    remedy="start again for a new draft; send an update of the target to the target alone",
                )
            seen.add(name)
            if route.canonical == EMBEDDING and route.target is None:
                self._own_embedding = tensor
            if route.target is not None:
                yield route.target, self._transform(route, tensor)

    def _compare_when_shared(self, model: Any, own: torch.Tensor) -> None:
        """Compare once, when SGLang puts the target's embedding (or embedding and head) in place of the draft's."""
        first_row = compat.first_vocabulary_row(model)

        def compared(original: Callable[..., Any]) -> Callable[..., Any]:
            def share(embedding: torch.Tensor, *head: torch.Tensor) -> Any:
                # Back to the class's own methods before anything can fail.
                for name in compat.EMBEDDING_SETTERS:
                    del vars(model)[name]
                self._compare(own[first_row : first_row + len(embedding)], embedding)
                return original(embedding, *head)

            return share

        for name in compat.EMBEDDING_SETTERS:
            vars(model)[name] = compared(getattr(model, name))

    def _compare(self, own: torch.Tensor, shared: torch.Tensor) -> None:
        rows = min(len(own), len(shared))
        different = differing_rows(own[:rows], shared[:rows])
        if different:
            raise refused(
                "trained-embedding",
                f"{self._plan.draft_path}: {EMBEDDING}",
                "the target's embedding, which SGLang puts in its place",
                f"{different} of {rows} rows differ",
                why="a trained embedding would be overwritten",
                remedy=EMBEDDING_REMEDY,
            )

    def before_load_model(self, runner: Any, *args: Any, **kwargs: Any) -> None:
        """BEFORE ModelRunner.load_model: where SGLang's class would compute something else, ours is in its place."""
        if runner.is_draft_worker and self._plan.draft_class != self._plan.draft_architecture:
            # Late: torch and SGLang come with it.
            from eagle3_adapters.sglang.drafts.adapted import adapted_class  # noqa: PLC0415
            from eagle3_adapters.sglang.drafts.stock import put_in_place  # noqa: PLC0415

            put_in_place(self._plan.draft_architecture, adapted_class(self._plan))

    def after_load_model(self, result: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
        """AFTER ModelRunner.load_model: a draft's weights must have come through :meth:`around_load_weights`."""
        if runner.is_draft_worker and runner.model not in self._loaded:
            raise refused(
                "weight-missing",
                f"{self._plan.draft_path}: all tensors",
                "weights that SGLang loads through the draft class",
                f"a loader that fills {type(runner.model).__name__} by itself",
                why="columns, vocabulary map and names would be as in the file, unchecked",
                remedy="--load-format auto  (and --speculative-draft-load-format auto)",
            )

    def _transform(self, route: TensorRoute, tensor: torch.Tensor) -> torch.Tensor:
        if route.transform == "columns":
            return permute_blocks(tensor, self._plan.column_order)
        if route.transform == "offsets":
            return as_offsets(tensor, self._plan.vocab_encoding or VocabEncoding.OFFSET)
        return tensor

    def _account(self, model: Any, seen: set[str]) -> None:
        absent = [name for name, route in self._routes.items() if route.target is not None and name not in seen]
        if absent:
            raise refused(
                "weight-missing",
                f"{self._plan.draft_path}: {absent[0]}",
                f"all {len(self._routes)} tensors that were planned",
                f"{len(absent)} never arrived",
            )
        excused = {unfilled.parameter for unfilled in self._plan.unfilled}
        holes = [name for name in unfilled_parameters(model) if name not in excused]
        if holes:
            raise refused(
                "weight-missing",
                f"{self._plan.draft_class}.{holes[0]}",
                "a parameter that the checkpoint fills",
                f"{len(holes)} parameters left unfilled, or filled with NaN: {', '.join(holes[:4])}",
                why="SGLang would serve with random numbers in their place",
            )
        expected = self._plan.draft_vocab_size if self._plan.vocab_encoding else None
        found = None if model.hot_token_id is None else len(model.hot_token_id)
        if found != expected:
            raise refused(
                "vocab-map-missing",
                f"{self._plan.draft_class}.hot_token_id",
                f"{expected} entries",
                str(found),
                why="every proposed token would be another one",
            )


def poison(model: Any) -> None:
    """Fill every floating-point parameter with NaN: what the checkpoint does not fill stays visible."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data.fill_(float("nan"))


def unfilled_parameters(model: Any) -> list[str]:
    """Parameters that still hold a NaN, in whole or in part."""
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.is_floating_point() and bool(parameter.isnan().any())
    ]


def permute_blocks(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Reorder the last dimension in ``len(order)`` equal blocks: block p of the result is block ``order[p]``."""
    import torch  # noqa: PLC0415 - the module is imported by processes without torch

    blocks = tensor.chunk(len(order), dim=-1)
    return torch.cat([blocks[source] for source in order], dim=-1)


def as_offsets(tensor: torch.Tensor, encoding: VocabEncoding) -> torch.Tensor:
    """A vocabulary map of any encoding as the offsets that SGLang adds to the draft id. int64, [draft vocabulary]."""
    import torch  # noqa: PLC0415 - as above

    if encoding is VocabEncoding.OFFSET:
        return tensor.to(torch.int64)
    ids = tensor.nonzero().flatten() if encoding is VocabEncoding.MASK else tensor.to(torch.int64)
    return ids - torch.arange(len(ids), device=ids.device)

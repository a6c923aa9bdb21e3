"""Owns measuring one wiring: the reference draft over the target's recorded states, greedy chain verification."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from eagle3_adapters.diagnosis.declared import with_rope_theta
from eagle3_adapters.diagnosis.prompts import DiagnosisError
from eagle3_adapters.diagnosis.statistics import Tallies
from eagle3_adapters.diagnosis.target import Recorded, Recording
from eagle3_adapters.diagnosis.wirings import Wiring
from eagle3_adapters.reference import chain_proposals, simulate
from eagle3_adapters.reference.load import LoadedDraft, load_draft
from eagle3_adapters.wiring import WiringPlan

#: Prompts that go through the draft at once.
_BATCH = 4


class Evaluator:
    """Tallies of a draft under any wiring, on one recording. It holds one variant of the draft's weights at a time."""

    def __init__(self, plan: WiringPlan, recording: Recording, *, steps: int, device: str = "cpu") -> None:
        self._plan, self._recording, self._steps, self._device = plan, recording, steps, device
        self._embedding = recording.embedding.to(device)
        self._variant: tuple[WiringPlan, LoadedDraft] | None = None

    def measure(self, wiring: Wiring, prompts: Sequence[int]) -> Tallies:
        """(accepted, verifies) of each prompt, by its number."""
        loaded = self._loaded(wiring)
        recorded = [self._recording.prompts[prompt] for prompt in prompts]
        batches = [recorded[start : start + _BATCH] for start in range(0, len(recorded), _BATCH)]
        return [tally for batch in batches for tally in self._tallies(loaded, wiring, batch)]

    def coverage(self, wiring: Wiring) -> float:
        """Share of the generated tokens that the draft's vocabulary holds."""
        held = set(self._loaded(wiring).draft_to_target.tolist())
        said = [token for one in self._recording.prompts for token in _generated(one)]
        return sum(token in held for token in said) / len(said)

    def _loaded(self, wiring: Wiring) -> LoadedDraft:
        plan = attrs.evolve(
            self._plan,
            math=wiring.math,
            vocab_encoding=wiring.encoding,
            config=with_rope_theta(self._plan.config, wiring.rope_theta),
        )
        if self._variant is None or self._variant[0] != plan:
            self._variant = None  # two at once would double the memory
            try:
                loaded = load_draft(plan)
            except NotImplementedError as error:
                raise DiagnosisError(str(error)) from error
            loaded.draft.to(self._device)
            self._variant = (plan, loaded)
        return self._variant[1]

    def _tallies(self, loaded: LoadedDraft, wiring: Wiring, batch: Sequence[Recorded]) -> list[tuple[int, int]]:
        tokens = pad_sequence([torch.tensor(one.continuation.tokens) for one in batch], batch_first=True)
        features = pad_sequence([_features(one, wiring) for one in batch], batch_first=True)
        # A draft that was trained with an embedding of its own keeps it.
        own = loaded.embedding
        proposals = chain_proposals(
            loaded.draft,
            features=features.to(self._device, torch.float32),
            tokens=tokens.to(self._device),
            embedding=self._embedding if own is None else own.to(self._device),
            draft_to_target=loaded.draft_to_target.to(self._device),
            steps=self._steps,
        ).cpu()
        counts = [
            simulate(one.continuation, proposals[row], max_new_tokens=one.new_tokens) for row, one in enumerate(batch)
        ]
        return [(count.accepted, count.verifies) for count in counts]


def _features(one: Recorded, wiring: Wiring) -> Tensor:
    return torch.cat([one.states[boundary] for boundary in wiring.boundaries], dim=-1)


def _generated(one: Recorded) -> Sequence[int]:
    return one.continuation.tokens[one.continuation.prompt_length :]

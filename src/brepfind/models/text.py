"""The text tower: a sentence to one vector, by a transformer that is frozen in part or learns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from brepfind.errors import InputError
from brepfind.models import text_source
from brepfind.models.text_source import Pooling
from brepfind.models.tower_layers import Stack, stack_of

Train = Literal["frozen", "last", "full"]


class Tokens(NamedTuple):
    """Captions as token ids.

    Attributes:
        ids: int64 (B, L), padded on the right.
        mask: int64 (B, L), 1 where a token is real.
        truncated: how many captions were longer than the tower's limit and lost their end.
    """

    ids: Tensor
    mask: Tensor
    truncated: int


class TextTower(nn.Module):
    """A transformer and its tokenizer; build it with :meth:`load`.

    ``forward(tokens)`` is ``upper(lower(tokens), tokens.mask)``. ``lower`` never needs a gradient,
    and what it gives may be kept for as long as the tower lives:

    - ``frozen``: the sentence vectors themselves, (B, 1, D); ``upper`` passes them on and does not
      read its mask;
    - ``last``: the input of the first layer that learns, (B, L, D);
    - ``full``: the token ids, int64 (B, L); everything is computed in ``upper``.

    Frozen layers stay in eval mode under ``train()``.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        train: Train,
        last_layers: int,
        max_tokens: int,
        pooling: Pooling,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.train_mode: Train = train
        self.max_tokens = max_tokens
        self.pooling: Pooling = pooling
        # In a tuple, because it only holds references into the model and is no submodule.
        self._stacks: tuple[Stack | None] = (stack_of(model),)
        self._split = self._freeze(last_layers)
        self.train(self.training)

    @classmethod
    def load(cls, name_or_path: str, train: Train, last_layers: int) -> TextTower:
        """Load a tower from this machine's disk, in float32 whatever its file holds.

        Args:
            name_or_path: ``minilm``, a name of the Hugging Face hub, or a folder.
            train: which layers learn.
            last_layers: how many, for ``last``.

        Raises:
            InputError: if it is not on this machine (the message says how to get it), or cannot
                be trained as asked.
            CheckpointError: if its weights are incomplete, not finite or not the expected ones.
        """
        folder = text_source.locate(name_or_path)
        kind = text_source.model_kind(folder, name_or_path)
        model = text_source.load_model(folder, name_or_path, kind)
        tokenizer = text_source.load_tokenizer(folder, name_or_path)
        return cls(
            model,
            tokenizer,
            name_or_path,
            train,
            last_layers,
            max_tokens=text_source.max_tokens(folder, model, tokenizer),
            pooling=text_source.pooling_of(folder, kind),
        )

    @property
    def dim(self) -> int:
        """Width of the sentence vector, D."""
        return self.model.config.hidden_size

    @property
    def depth(self) -> int:
        """Number of transformer layers."""
        return self.model.config.num_hidden_layers

    def settings(self) -> str:
        """All but weights and tokens that decides what :meth:`lower` gives, as canonical JSON."""
        config = json.loads(self.model.config.to_json_string(use_diff=False))
        config.pop("_name_or_path", None)  # where it lies says nothing of what it computes
        return json.dumps([self.train_mode, self._split, self.pooling, config], sort_keys=True)

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Captions to token ids on the CPU.

        Raises:
            InputError: if a caption has no token at all.
        """
        rows = []
        if texts:
            rows = self.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        truncated = 0
        for place, row in enumerate(rows):
            if len(row) > self.max_tokens:
                truncated += 1
                cut = self.tokenizer(texts[place], truncation=True, max_length=self.max_tokens)
                rows[place] = cut["input_ids"]
            elif not row:
                raise InputError(f"caption {place} ({texts[place]!r}) has no token")
        longest = max(map(len, rows), default=0)
        ids = torch.full((len(rows), longest), self._pad_id(), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        return Tokens(ids, mask, truncated)

    @torch.no_grad()
    def lower(self, tokens: Tokens) -> Tensor:
        """What the frozen layers give; see the class. On the device of ``tokens``."""
        if self.train_mode == "full":
            return tokens.ids
        if self.train_mode == "frozen":
            return self._pool(self._whole(tokens.ids, tokens.mask), tokens.mask)[:, None]
        stack = self._known_stack()
        hidden = stack.embed(tokens.ids, tokens.mask)
        return stack.run(hidden, tokens.mask, 0, self._split)

    def upper(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """The learning layers and the pooling.

        Args:
            hidden: what :meth:`lower` gave.
            mask: int64 (B, L), that of the tokens.

        Returns:
            (B, D), not normalised.
        """
        if self.train_mode == "frozen":
            return hidden[:, 0]
        if self.train_mode == "full":
            return self._pool(self._whole(hidden, mask), mask)
        stack = self._known_stack()
        hidden = stack.finish(stack.run(hidden, mask, self._split, self.depth))
        return self._pool(hidden, mask)

    def forward(self, tokens: Tokens) -> Tensor:
        """Token ids to sentence vectors (B, D), not normalised."""
        return self.upper(self.lower(tokens), tokens.mask)

    def train(self, mode: bool = True) -> TextTower:
        """Set training mode; frozen layers stay in eval mode, so that what is kept stays true."""
        super().train(mode)
        if self.train_mode != "full":
            self.model.eval()
        if self.train_mode == "last":
            stack = self._known_stack()
            for module in (*stack.layers[self._split :], *stack.last):
                module.train(mode)
        return self

    def _whole(self, ids: Tensor, mask: Tensor) -> Tensor:
        (stack,) = self._stacks
        if stack is None:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return stack.finish(stack.run(stack.embed(ids, mask), mask, 0, self.depth))

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.pooling == "first":
            return hidden[:, 0]
        if self.pooling == "eos":
            # The end-of-text token is the last real one: captions are padded on the right, and a
            # cut caption keeps it.
            return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
        weight = mask[:, :, None].to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1)

    def _known_stack(self) -> Stack:
        (stack,) = self._stacks
        assert stack is not None, "checked when the tower was built"
        return stack

    def _pad_id(self) -> int:
        pad = self.tokenizer.pad_token_id
        return 0 if pad is None else pad  # the mask hides it either way

    def _freeze(self, last_layers: int) -> int:
        """Set which parameters learn; returns the first layer that does."""
        if self.train_mode == "full":
            return 0
        self.model.requires_grad_(False)
        if self.train_mode == "frozen":
            return self.depth
        (stack,) = self._stacks
        if stack is None:
            raise InputError(
                f"text tower {self.name}: the layers of a {self.model.config.model_type} model "
                "cannot be trained in part here; train all of it (full) or none (frozen)"
            )
        if not 1 <= last_layers <= self.depth:
            raise InputError(
                f"text tower {self.name}: last_layers is {last_layers}; it has {self.depth} layers"
            )
        split = self.depth - last_layers
        for module in (*stack.layers[split:], *stack.last):
            module.requires_grad_(True)
        return split

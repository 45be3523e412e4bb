"""The train section of params.yaml, and what may not be combined in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from brepfind.metrics.guard import GuardLimits
from brepfind.models.dual import DualConfig
from brepfind.models.encoder import EncoderConfig
from brepfind.params import Section

FrozenPart = Literal["surface_cnn", "curve_cnn", "features", "bias", "encoder"]


class LossConfig(Section):
    """The symmetric contrastive loss."""

    local: bool = Field(
        description="each rank computes the rows of its own pairs (B x W B) instead of the whole "
        "matrix (W B x W B); the gradients are the same, the memory is a W-th"
    )


class TrainConfig(Section):
    """How the dual encoder is trained; every field can change the result."""

    processes: int = Field(ge=1, le=1024, description="ranks, on all machines together")
    epochs: int = Field(ge=1, le=100_000, description="passes over the training parts")
    batch_size: int = Field(
        ge=2, description="pairs per step over all ranks together: 1 positive, the rest negatives"
    )
    micro_batch: int | None = Field(
        ge=1, description="pairs per rank in memory at once; null is the whole share of a rank"
    )
    lr: float = Field(gt=0, le=1, description="learning rate of the encoder and the heads")
    text_lr: float = Field(gt=0, le=1, description="learning rate of the text tower's layers")
    weight_decay: float = Field(ge=0, le=10, description="AdamW's, on matrices only")
    warmup_steps: int = Field(ge=0, description="steps until the learning rate is whole")
    schedule: Literal["cosine", "constant"] = Field(
        description="after warm-up, as a function of the number of steps seen"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        description="of the forward pass; weights stay float32"
    )
    text_tower: str = Field(
        min_length=1, description="minilm (shipped), a known model's name, or a folder on disk"
    )
    text_train: Literal["frozen", "last", "full"] = Field(
        description="what of the text tower learns"
    )
    last_layers: int = Field(ge=1, le=64, description="layers that learn where text_train is last")
    text_fp16: bool = Field(
        description="allow fp16 for a text tower known to overflow in it (DeBERTa)"
    )
    encoder: EncoderConfig = Field(
        description="its size, where no pretrained weights give it; dropout and max_faces always"
    )
    embed_dim: int = Field(ge=2, le=4096, description="width of the common space")
    size_features: bool = Field(
        description="join the part's original size (box, area, volume, in logs) to its embedding"
    )
    shape_features: bool = Field(
        description="join plain descriptors of the part, such as counts of faces by type, to it"
    )
    number_features: bool = Field(
        description="compare the lengths that a caption names with the part's own"
    )
    pattern_features: bool = Field(
        False, description="compare the counts and lengths that it names with what repeats in it"
    )
    freeze: list[FrozenPart] = Field(
        description="parts that do not learn; their features are computed once and kept"
    )
    freeze_batch_norm: bool = Field(
        description="use the pretrained statistics and leave them as they are"
    )
    face_order: Literal["file", "random"] = Field(
        "file",
        description="random: each epoch sees the faces of a part in another order, since the order "
        "in its file means nothing",
    )
    gradient_checkpointing: bool = Field(description="less memory for more time")
    loss: LossConfig = Field(description="the contrastive loss")
    grad_clip: float = Field(gt=0, description="largest norm of the gradient over all parameters")
    nonfinite: Literal["halt", "skip"] = Field(
        description="what a loss or gradient that is not finite does to the run"
    )
    max_skips_in_a_row: int = Field(ge=1, description="so many skipped steps in a row end the run")
    max_skip_rate: float = Field(
        ge=0, le=1, description="a larger share of skipped steps in the window ends the run"
    )
    skip_window: int = Field(ge=1, le=100_000, description="steps over which that share is taken")
    initial_loss_scale: float = Field(gt=0, description="fp16: where the loss scale starts")
    min_loss_scale: float = Field(gt=0, description="fp16: a loss scale below it ends the run")
    max_overflows_in_a_row: int = Field(
        ge=1, description="fp16: so many overflows in a row end the run"
    )
    scan_every: int = Field(ge=1, description="steps between scans of weights and buffers")
    validation_every: int = Field(ge=1, description="epochs between validations")
    patience: int | None = Field(
        ge=1, description="validations without a better recall that end training; null never"
    )
    min_embedding_std: float = Field(
        ge=0, le=1, description="a tower below it at validation is dead (1 is healthy, 0 constant)"
    )
    min_distinct_rows: float = Field(
        ge=0, le=1, description="distinct embeddings over distinct inputs; below it is collapse"
    )
    max_epochs_at_chance: int | None = Field(
        ge=1,
        description="epochs in a row whose loss is that of guessing, which end the run; null: "
        "they are counted and said",
    )
    seed: int = Field(ge=0, lt=2**31, description="of weights, batches, captions and dropout")
    timeout_s: float = Field(
        gt=0, le=86_400, description="the longest time a rank may go without a sign of life"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if self.batch_size % self.processes:
            raise ValueError(
                f"batch_size {self.batch_size} must be a multiple of processes {self.processes}"
            )
        share = self.batch_size // self.processes
        if self.micro_batch is not None and share % self.micro_batch:
            raise ValueError(
                f"micro_batch {self.micro_batch} must divide each rank's share of a batch, {share}"
            )
        if self.accumulates and not self.freeze_batch_norm:
            # Each micro-batch passes twice: statistics would move twice, and the gradients would
            # not be those of the whole batch.
            raise ValueError("micro_batch needs freeze_batch_norm: true")
        if self.initial_loss_scale < self.min_loss_scale:
            raise ValueError("initial_loss_scale is below min_loss_scale")
        return self

    @property
    def dual(self) -> DualConfig:
        """What joins the towers."""
        return DualConfig(**{name: getattr(self, name) for name in DualConfig.model_fields})

    @property
    def share(self) -> int:
        """Pairs of one rank in a step."""
        return self.batch_size // self.processes

    @property
    def accumulates(self) -> bool:
        """Whether a rank's share passes in several micro-batches."""
        return self.micro_batch is not None and self.micro_batch < self.share

    @property
    def static_graph(self) -> bool:
        """Whether DistributedDataParallel is told that the graph never changes.

        Checkpointing here is non-re-entrant, the kind that works with and without it. A static
        graph fails if its first iteration is under ``no_sync``, which accumulation needs.
        """
        return self.gradient_checkpointing and not self.accumulates

    def limits(self) -> GuardLimits:
        """What the guard needs."""
        return GuardLimits(
            nonfinite=self.nonfinite,
            max_skips_in_a_row=self.max_skips_in_a_row,
            max_skip_rate=self.max_skip_rate,
            skip_window=self.skip_window,
            min_loss_scale=self.min_loss_scale if self.precision == "fp16" else 0.0,
            max_overflows_in_a_row=self.max_overflows_in_a_row,
        )

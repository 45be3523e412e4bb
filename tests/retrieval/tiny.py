"""A real dual encoder that is small and knows nothing."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.checkpoints.weights import save_weights
from brepfind.models.dual import DualConfig, DualEncoder
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.text import TextTower


def make_tower(folder: Path, words: Sequence[str]) -> Path:
    """A BERT of two layers with a limit of 8 tokens; returns its folder."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=8
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


def make_dual(tower: Path) -> DualEncoder:
    """The dual encoder over a tower's folder."""
    encoder = BrepEncoder(
        EncoderConfig(dim=16, layers=1, heads=2, kv_heads=1, feed_forward=16, dropout=0.1)
    )
    config = DualConfig(embed_dim=8, size_features=True, shape_features=True, number_features=True)
    return DualEncoder(encoder, TextTower.load(str(tower), "last", 1), config)


def write_dual(path: Path, dual: DualEncoder, tower: Path) -> Path:
    """Its weights as the train stage writes them; returns their path."""
    metadata = {
        "kind": "dual",
        "encoder": dual.encoder.config.model_dump_json(),
        "dual": dual.config.model_dump_json(),
        "text_tower": str(tower),
        "text_train": "last",
        "last_layers": "1",
        "feature_version": str(FEATURE_VERSION),
    }
    save_weights(path, dual.state_dict(), metadata)
    return path

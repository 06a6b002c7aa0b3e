"""A draft head: one layer that guesses on, from what the target has just computed.

It is EAGLE's idea (Li et al. 2024, arXiv:2401.15077): the target's output is a better place to
guess from than the tokens. The row of the token at position t reads that token's embedding and the
target's output at t - 1, and estimates the target's output at t; the target's own head then turns
the estimate into a token. To go on, the estimate takes the place of the target's output. Only the
rows of frequent tokens are read of the head (FR-Spec, Zhao et al. 2025, arXiv:2502.14856).

    embedding(token t), hidden t-1  ->  fc  ->  one decoder layer  ->  norm  ->  feature t
    feature t  ->  rows of the target's head  ->  draft of token t+1
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from minillm_serve.models.cache import cache_root
from minillm_serve.models.codes import CodedWeight
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.draft_file import DraftFile, read_draft_file
from minillm_serve.models.embedded import EMBEDDED
from minillm_serve.models.layers import Linear, Placement, RMSNorm
from minillm_serve.models.rope import rotation
from minillm_serve.models.transformer import Attend, DecoderLayer, FusedAttend, Transformer

FILE = "head.safetensors"


class DraftHead(nn.Module):
    """The head of one target; its parameters are empty until they are filled.

    It shares the target's embedding and head, and trains neither. Where gradients are recorded,
    plain torch computes it; otherwise the same kernels as the target's.

    Args:
        target: whose output it guesses; on its device and in its dtype.
        vocabulary: int64 ``[V_d]``, ids of the target that can be drafted, rising.

    Attributes:
        config: of one layer: with it a `KVCache` and an attention backend can be made.
        vocabulary: draft id -> the target's id.
    """

    def __init__(self, target: Transformer, vocabulary: Tensor) -> None:
        super().__init__()
        place = Placement(target.dtype, target.device)
        self.config = draft_config(target.config)
        hidden = self.config.hidden_size
        self.fc = Linear(2 * hidden, hidden, bias=False, place=place)
        self.layer = DecoderLayer(self.config, 0, place)
        self.norm = RMSNorm((hidden,), self.config.rms_norm_eps, place)
        self.vocabulary = vocabulary.to(target.device)
        self.frequencies = target.frequencies
        self._rows = _rows_of(target.lm_head, self.vocabulary, place)

    def forward(
        self,
        embeddings: Tensor,
        hidden_before: Tensor,
        positions: Tensor,
        attend: Attend | FusedAttend,
    ) -> Tensor:
        """Estimates the target's output for some tokens.

        Args:
            embeddings: ``[T, hidden]``, the target's, of the tokens.
            hidden_before: ``[T, hidden]``, the target's output one position earlier, or the head's
                own estimate of it; zeros for position 0.
            positions: int64 ``[T]``, of the tokens.
            attend: called as layer 0.

        Returns:
            features ``[T, hidden]``, after the head's norm.
        """
        x = self.fc(torch.cat([embeddings, hidden_before], dim=1))
        cos, sin = rotation(positions, self.frequencies, x.dtype)
        x, residual = self.layer(x, torch.zeros_like(x), cos, sin, attend)
        return self.norm.after_adding(x, residual)[0]

    def logits(self, features: Tensor) -> Tensor:
        """``[R, hidden] -> [R, V_d]``; column i stands for the target's id ``vocabulary[i]``."""
        return self._rows(features)

    @property
    def bytes_read(self) -> int:
        """Bytes of weight matrices that a pass of few rows reads: codes where there are any."""
        return sum(module.bytes_read for module in self.modules() if isinstance(module, Linear))

    def matrices(self) -> dict[str, Linear]:
        """The trained matrices, by the names that they have in a file."""
        layer = self.layer
        return {
            "fc": self.fc,
            "qkv_proj": layer.attention.qkv_proj,
            "o_proj": layer.attention.o_proj,
            "gate_up_proj": layer.mlp.gate_up_proj,
            "down_proj": layer.mlp.down_proj,
        }

    def norms(self) -> dict[str, RMSNorm]:
        """The trained norms, likewise."""
        layer = self.layer
        return {
            "input_norm": layer.input_norm,
            "post_attention_norm": layer.post_attention_norm,
            "norm": self.norm,
        }

    def pack(self) -> None:
        """Prepares filled weights for a CPU; the rows of the target's head are prepared already."""
        for linear in self.matrices().values():
            linear.pack()


def draft_config(target: ModelConfig) -> ModelConfig:
    """The target's shape with a single layer, without biases, head norms and windows."""
    return replace(
        target,
        num_layers=1,
        sliding_windows=(None,),
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
    )


def load_draft_head(path: str | Path, target: Transformer) -> DraftHead:
    """Loads a head for the target that it was trained for.

    Args:
        path: a file that `draft_file.write_draft_file` wrote, or the directory of `FILE`.
        target: filled, and packed if it is on a CPU.

    Raises:
        ValueError: the file is none of a head, or it was trained for a target of another shape.
    """
    file = Path(path).expanduser()
    file = file / FILE if file.is_dir() else file
    found = read_draft_file(file)
    _check_fit(found, target.config, file)
    head = DraftHead(target, found.vocabulary)
    with torch.no_grad():
        for name, linear in head.matrices().items():
            linear.weight.copy_(found.matrices[name])
        for name, norm in head.norms().items():
            norm.weight.copy_(found.norms[name])
    if target.device.type == "cpu":
        head.pack()
    return head.eval()


def find_draft_head(model: str | Path) -> Path | None:
    """The file of the head that comes with an embedded model; None for every other model.

    Args:
        model: as `LLM` takes it, or the directory that it was resolved to.
    """
    directory = Path(model).expanduser()
    named = isinstance(model, str) and model in EMBEDDED
    cached = directory.name in EMBEDDED and directory.parent == cache_root()
    file = Path(__file__).parents[1] / "drafters" / directory.name / FILE
    return file if (named or cached) and file.is_file() else None


def _rows_of(head: Linear, vocabulary: Tensor, place: Placement) -> Linear:
    """Some rows of the target's head, in as few bits as it has."""
    columns = head.weight.shape[1]
    rows = Linear(columns, len(vocabulary), bias=head.bias is not None, place=place)
    if head.quantized is not None:
        rows.keep_quantized(head.quantized.rows(vocabulary), place.device)
    else:
        rows.weight.data = head.weight.data[vocabulary]
    if rows.bias is not None and head.bias is not None:
        rows.bias.data = head.bias.data[vocabulary]
    if head.coded is not None:
        rows.coded = CodedWeight(*(tensor[vocabulary] for tensor in head.coded))
    return rows


def _check_fit(found: DraftFile, config: ModelConfig, file: Path) -> None:
    """Refuses a head of another target by the first number that differs."""
    for name, theirs in found.shape.items():
        ours = getattr(config, name)
        if ours != theirs:
            raise ValueError(
                f"the draft head in {file} was trained for {found.target}, whose {name} is "
                f"{theirs}; this model's is {ours}. Train one: minillm-serve train-drafter."
            )

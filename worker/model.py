"""Decoders of Llama's family, computing one step of a mixed batch."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from kernels import Linear, RMSNorm, Rotary, Storage, gated, rotate
from kernels.native import CodedLayer, CodedLayers, native
from worker.attending import Attention
from worker.kv.layout import CPU, Layout
from worker.kv.shape import KVShape
from worker.linears import Linears
from worker.rows import Row, positions_of, wanted_of
from worker.weights import Weights

_KV_FORMAT = "saltway-kv-3"  # part of the fingerprint: raise it when the same weights begin to give other KV
_READ_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class _Layer:
    """One decoder layer.

    qk_norm   of queries and keys, with a weight [heads + kv heads, head_dim]; None without
    """

    attention_norm: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm | None
    output: Linear
    ffn_norm: RMSNorm
    gate_up: Linear
    down: Linear

    @property
    def coded(self) -> CodedLayer | None:
        """The same for the kernels in C; None when a matrix is not kept as codes."""
        linears = self.qkv.coded, self.output.coded, self.gate_up.coded, self.down.coded
        if None in linears:
            return None
        qk_norm = None if self.qk_norm is None else self.qk_norm.weight
        qkv, output, gate_up, down = (linear for linear in linears if linear is not None)
        return CodedLayer(self.attention_norm.weight, qkv, qk_norm, output, self.ffn_norm.weight, gate_up, down)


class Model:
    """Weights and the forward pass.

    dtype     of activations and KV
    context   the longest sequence that it computes: the model's own limit, or less where the caller needs less
    storage   what matrices are kept as; None for the dtype itself
    tile      rows of every product, for the deterministic mode; None for as many as there are
    device    where weights and KV are and the pass is computed. A layer's tensors go there as soon as they are read, so
              that main memory holds no more than one layer of a model that computes elsewhere
    errors    ModelError at load for a storage type that is not supported, with the tensor's name
    """

    def __init__(
        self,
        weights: Weights,
        dtype: torch.dtype,
        context: int | None = None,
        storage: Storage | None = None,
        tile: int | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.device = device
        self.config = config = weights.config
        self.dtype = dtype
        self.context = config.context if context is None else min(context, config.context)
        storage = storage or ("bfloat16" if dtype == torch.bfloat16 else "float32")
        linears = Linears(weights, dtype, storage, tile, device)
        self._embedding = weights.tensor("model.embed_tokens.weight").to(device, dtype)
        self._layers = [self._load_layer(weights, linears, index) for index in range(config.layers)]
        self._coded = self._in_one_call()
        self._norm = self._load_norm(weights.tensor("model.norm.weight"))
        self._head = linears.head("model.embed_tokens", self._embedding) if config.tied else linears.head("lm_head")
        self._rotary = Rotary(config.rope.frequencies, self.context, dtype, config.rope.amplitude, device)

    @property
    def kv_shape(self) -> KVShape:
        return KVShape(self.config.layers, self.config.kv_heads, self.config.head_dim, self.dtype)

    @torch.inference_mode()
    def forward(self, tokens: list[int], rows: list[Row], layout: Layout) -> Tensor:
        """Computes the rows' tokens, writes their KV into their slots of the layout, and returns the wanted logits.

        tokens    the rows' tokens, one row after another
        rows      rows of one token first
        returns   float32 [wanted, vocabulary] on the model's device, row after row; see `wait`
        """
        attention = layout.attention(rows, self.config.windows)
        # All that comes from main memory is sent before the first layer: later it would wait for the layers before.
        wanted = wanted_of(rows).to(self.device)
        angles = self._rotary.at(positions_of(rows).to(self.device))
        x = embedding(torch.tensor(tokens, device=self.device), self._embedding)
        self._decode(x, angles, attention)
        if not len(wanted):
            return x.new_empty(0, self.config.vocabulary, dtype=torch.float32)
        return self._head(self._norm(x[wanted])).float()

    def wait(self) -> None:
        """Returns when all that `forward` was called for is computed. CUDA computes after the call has returned."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def _decode(self, x: Tensor, angles: tuple[Tensor, Tensor], attention: Attention) -> None:
        """All layers, in place."""
        tasks = None if self._coded is None else attention.tasks
        if self._coded is not None and tasks is not None:
            self._coded.run(x, *angles, tasks)
            return
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, angles)
            x += layer.output(attention.attend(index, q, k, v).reshape(len(x), -1))
            x += layer.down(gated(layer.gate_up(layer.ffn_norm(x))))

    def _project(self, layer: _Layer, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the rows, [tokens, heads or kv heads, head_dim]."""
        config = self.config
        qkv = layer.qkv(layer.attention_norm(x)).view(len(x), -1, config.head_dim)
        qk, v = torch.split(qkv, [config.heads + config.kv_heads, config.kv_heads], dim=1)
        if layer.qk_norm is not None:
            qk = layer.qk_norm(qk)
        q, k = torch.split(rotate(qk, *angles), [config.heads, config.kv_heads], dim=1)
        return q, k, v

    def _load_layer(self, weights: Weights, linears: Linears, index: int) -> _Layer:
        config, stem = self.config, f"model.layers.{index}"
        projections = [f"{stem}.self_attn.{name}_proj" for name in "qkv"]
        return _Layer(
            attention_norm=self._load_norm(weights.tensor(f"{stem}.input_layernorm.weight")),
            # Of all these are hurt most by rounding what goes in: half of the divergence for a sixth of the work.
            qkv=linears(*projections, bias=config.qkv_bias, fine=True),
            qk_norm=self._load_qk_norm(weights, f"{stem}.self_attn") if config.qk_norm else None,
            output=linears(f"{stem}.self_attn.o_proj", bias=config.output_bias),
            ffn_norm=self._load_norm(weights.tensor(f"{stem}.post_attention_layernorm.weight")),
            gate_up=linears(f"{stem}.mlp.gate_proj", f"{stem}.mlp.up_proj", bias=config.mlp_bias),
            down=linears(f"{stem}.mlp.down_proj", bias=config.mlp_bias),
        )

    def _in_one_call(self) -> CodedLayers | None:
        """The layers for the kernels in C, where these compute all that is between two attentions; None elsewhere."""
        config, library = self.config, native()
        layers = [coded for layer in self._layers if (coded := layer.coded) is not None]
        fits = self.dtype == torch.float32 and len(layers) == len(self._layers)
        if library is None or not fits or not CodedLayers.takes(layers, config.head_dim):
            return None
        return CodedLayers(library, layers, config.heads, config.kv_heads, config.head_dim, config.epsilon)

    def _load_qk_norm(self, weights: Weights, stem: str) -> RMSNorm:
        counts = {"q": self.config.heads, "k": self.config.kv_heads}
        rows = [weights.tensor(f"{stem}.{name}_norm.weight").expand(count, -1) for name, count in counts.items()]
        return self._load_norm(torch.cat(rows))

    def _load_norm(self, weight: Tensor) -> RMSNorm:
        return RMSNorm(weight.to(self.device), self.config.epsilon)


def fingerprint(
    weights: Weights,
    dtype: torch.dtype,
    storage: Storage = "float32",
    tile: int | None = None,
    device: torch.device = CPU,
    kept: str = "",
) -> str:
    """Names the KV that this model computes: equal fingerprints mean equal KV for equal tokens.

    kept     what KV is kept as (KVShape.kind), if that is not the dtype
    source   SHA-256 over the files, the dtype, the storage, the tile, the kind of device (none for the CPU), what KV is
             kept as and the version of our KV format; 32 hex digits

    Kinds of devices add up in different orders, so the same bfloat16 model differs between them by about a hundredth:
    a reply that another kind takes over would not go on as it began.
    """
    kind = "" if device.type == "cpu" else f"/{device.type}"
    other = f"/{kept}" if kept else ""
    digest = hashlib.sha256(f"{_KV_FORMAT}/{dtype}/{storage}/{tile or ''}{kind}{other}".encode())
    for path in weights.files:
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
    return digest.hexdigest()[:32]

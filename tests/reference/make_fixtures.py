#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/reference/: what PyTorch computes for a tiny decoder of each family.

    /usr/bin/python3 tests/reference/make_fixtures.py

Needs Debian's python3-torch. For each shape, in float64: the weights it begins with, tokens of 20
steps, loss and gradients of step 1, and loss, gradient norm and change of all parameters over 20
steps of AdamW with clipping and the trainer's schedule. float32 runs of the same say what rounding
alone does (in index.json, "float32"). Tensors are float32 little-endian, one .bin a shape; begin
weights are exact in float32, changes are stored as changes, so the rounding is no matter.
"""
import json
import math
import pathlib

import numpy as np
import torch

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "reference"
STEPS, WARMUP, TOTAL, FINAL = 20, 100, 4800, 0.1
BETA1, BETA2, EPS, MAX_NORM = 0.9, 0.95, 1e-8, 1.0

ALL = ["qkv", "out", "mlp", "norm"]
# What a shape below does not say.
USUAL = dict(norm="layernorm", norm_eps=1e-5, positions="learned", rope_theta=1e4, tied=True, weight_decay=0.0)

SHAPES = {
    # vocab, seq and batch are no multiples of any tile
    "mpt": dict(d_model=32, n_layers=2, n_heads=2, n_kv_heads=2, head_dim=16, ffn=128, vocab=203,
                seq_len=21, batch=3, microbatch=2, activation="gelu_erf", biases=ALL, lr=3e-3),
    # the head width of the published models, and more than one tile of attention
    "head64": dict(d_model=64, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=64, ffn=128, vocab=130,
                   seq_len=70, batch=2, microbatch=2, activation="gelu_erf", biases=ALL, lr=3e-3),
    # grouped queries, attention wider than the model, GPT-2's GELU, no biases, weight decay
    "grouped": dict(d_model=48, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16, ffn=80, vocab=128,
                    seq_len=33, batch=4, microbatch=3, activation="gelu_tanh", biases=[], lr=2e-3,
                    weight_decay=0.1),
    # GPT-2: learned positions, GELU by tanh, every bias, tied
    "gpt2": dict(d_model=48, n_layers=2, n_heads=3, n_kv_heads=3, head_dim=16, ffn=192, vocab=200,
                 seq_len=29, batch=3, microbatch=2, activation="gelu_tanh", biases=ALL, lr=2e-3),
    # MPT with ALiBi and without biases; heads no power of two, more than one tile of attention
    "alibi": dict(d_model=48, n_layers=2, n_heads=6, n_kv_heads=6, head_dim=8, ffn=96, vocab=130,
                  seq_len=75, batch=2, microbatch=1, activation="gelu_erf", biases=[], positions="alibi", lr=2e-3),
    # Llama and Mistral: RMSNorm, rotary positions, SwiGLU, grouped queries, a head of its own
    "llama": dict(d_model=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16, ffn=88, vocab=150,
                  seq_len=41, batch=3, microbatch=2, activation="swiglu", biases=[], norm="rmsnorm",
                  norm_eps=1e-6, positions="rope", tied=False, lr=2e-3, weight_decay=0.1),
    # Qwen2: the same with biases of queries, keys and values, another base, tied
    "qwen2": dict(d_model=56, n_layers=2, n_heads=7, n_kv_heads=1, head_dim=8, ffn=72, vocab=131,
                  seq_len=70, batch=2, microbatch=2, activation="swiglu", biases=["qkv"], norm="rmsnorm",
                  norm_eps=1e-6, positions="rope", rope_theta=1e6, lr=2e-3),
}


def parameters(s, random):
    """Begin weights by name, [out, in]. Gains and biases away from 1 and 0, so that they matter."""
    d, a, kv, ffn = s["d_model"], s["n_heads"] * s["head_dim"], s["n_kv_heads"] * s["head_dim"], s["ffn"]
    mlp_in = 2 * ffn if s["activation"] == "swiglu" else ffn
    out = {}

    def matrix(name, rows, cols, scale=1.0):
        out[name] = random.standard_normal((rows, cols)) * math.sqrt(2 / cols) * scale

    def norm(name):
        out[name + ".gain"] = 1 + 0.1 * random.standard_normal((1, d))
        if "norm" in s["biases"]:
            out[name + ".bias"] = 0.1 * random.standard_normal((1, d))

    def bias(name, kind, cols):
        if kind in s["biases"]:
            out[name + ".bias"] = 0.1 * random.standard_normal((1, cols))

    matrix("token_table", s["vocab"], d)
    if s["positions"] == "learned":
        matrix("positions", s["seq_len"], d)
    norm("norm")
    residual = 1 / math.sqrt(2 * s["n_layers"])
    for layer in range(s["n_layers"]):
        b = f"block.{layer}."
        matrix(b + "qkv.weight", a + 2 * kv, d)
        matrix(b + "out.weight", d, a, residual)
        matrix(b + "up.weight", mlp_in, d)  # swiglu: gate, then up
        matrix(b + "down.weight", d, ffn, residual)
        norm(b + "norm1")
        bias(b + "qkv", "qkv", a + 2 * kv)
        bias(b + "out", "out", d)
        norm(b + "norm2")
        bias(b + "up", "mlp", mlp_in)
        bias(b + "down", "mlp", d)
    if not s["tied"]:
        matrix("head.weight", s["vocab"], d)
    return {name: value.astype(np.float32) for name, value in out.items()}


def slopes(heads):
    """MPT's ALiBi slopes."""
    power = 2 ** math.ceil(math.log2(heads))
    m = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    return m if power == heads else (m[1::2] + m[::2])[:heads]


def rotate(x, theta):
    """x [..., seq, width]: pairs (i, i + width / 2) as complex numbers, turned by their angle."""
    seq, width = x.shape[-2:]
    angle = torch.arange(seq, dtype=torch.float64)[:, None] * theta ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width)
    turned = torch.complex(x[..., :width // 2], x[..., width // 2:]) * torch.polar(
        torch.ones_like(angle), angle).to(torch.complex128 if x.dtype == torch.float64 else torch.complex64)
    return torch.cat([turned.real, turned.imag], -1)


def loss_of(s, p, tokens):
    """Mean cross-entropy of each next token. tokens [batch, seq + 1]."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    batch, seq = inputs.shape
    heads, kv_heads, width = s["n_heads"], s["n_kv_heads"], s["head_dim"]

    def bias(name):
        return p[name + ".bias"][0] if name + ".bias" in p else None

    def norm(name, x):
        if s["norm"] == "rmsnorm":
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + s["norm_eps"]) * p[name + ".gain"][0]
        return torch.nn.functional.layer_norm(x, (s["d_model"],), p[name + ".gain"][0], bias(name), s["norm_eps"])

    def linear(name, x):
        return torch.nn.functional.linear(x, p[name + ".weight"], bias(name))

    def activation(x):
        if s["activation"] == "swiglu":
            gate, up = x.chunk(2, -1)
            return torch.nn.functional.silu(gate) * up
        if s["activation"] == "gelu_erf":
            return torch.nn.functional.gelu(x)
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    x = p["token_table"][inputs]
    if s["positions"] == "learned":
        x = x + p["positions"][:seq]
    mask = torch.full((seq, seq), -math.inf, dtype=x.dtype).triu(1)
    if s["positions"] == "alibi":
        distance = torch.arange(seq, dtype=x.dtype)[None, :] - torch.arange(seq, dtype=x.dtype)[:, None]
        mask = mask + torch.tensor(slopes(heads), dtype=x.dtype)[:, None, None] * distance
    for layer in range(s["n_layers"]):
        b = f"block.{layer}."
        qkv = linear(b + "qkv", norm(b + "norm1", x))
        q, k, v = qkv.split([heads * width, kv_heads * width, kv_heads * width], dim=-1)
        q = q.view(batch, seq, heads, width).transpose(1, 2)
        k = k.view(batch, seq, kv_heads, width).transpose(1, 2)
        if s["positions"] == "rope":
            q, k = rotate(q, s["rope_theta"]), rotate(k, s["rope_theta"])
        k = k.repeat_interleave(heads // kv_heads, 1)
        v = v.view(batch, seq, kv_heads, width).transpose(1, 2).repeat_interleave(heads // kv_heads, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width) + mask
        attention = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, heads * width)
        x = x + linear(b + "out", attention)
        x = x + linear(b + "down", activation(linear(b + "up", norm(b + "norm2", x))))
    logits = norm("norm", x) @ p["token_table" if s["tied"] else "head.weight"].T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, s["vocab"]), targets.reshape(-1))


def learning_rate(peak, step):
    if step < WARMUP:
        return peak * step / WARMUP
    progress = min(1, (step - WARMUP) / (TOTAL - WARMUP))
    return peak * (FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * progress)))


def train(s, begin, tokens, dtype):
    p = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in begin.items()}
    m = {name: torch.zeros_like(value) for name, value in p.items()}
    v = {name: torch.zeros_like(value) for name, value in p.items()}
    losses, norms, first = [], [], None
    for step in range(1, STEPS + 1):
        loss = loss_of(s, p, torch.tensor(tokens[step - 1], dtype=torch.int64))
        gradients = dict(zip(p, torch.autograd.grad(loss, list(p.values()))))
        if first is None:
            first = gradients
        norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients.values()))
        clip = min(1.0, MAX_NORM / norm)
        losses.append(loss.item())
        norms.append(norm)
        lr = learning_rate(s["lr"], step)
        with torch.no_grad():
            for name, g in gradients.items():
                g = g * clip
                decay = s["weight_decay"] if p[name].shape[0] > 1 else 0.0
                m[name] = BETA1 * m[name] + (1 - BETA1) * g
                v[name] = BETA2 * v[name] + (1 - BETA2) * g * g
                mhat = m[name] / (1 - BETA1 ** step)
                vhat = v[name] / (1 - BETA2 ** step)
                p[name] -= lr * (mhat / (vhat.sqrt() + EPS) + decay * p[name])
    change = {name: value.detach().double() - torch.tensor(begin[name]).double() for name, value in p.items()}
    return losses, norms, first, change


def relative(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def main():
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    index = {"made_by": "tests/reference/make_fixtures.py", "torch": torch.__version__, "shapes": []}
    for number, (name, given) in enumerate(SHAPES.items()):
        s = {**USUAL, **given}
        random = np.random.default_rng(1000 + number)
        begin = parameters(s, random)
        tokens = random.integers(0, s["vocab"], (STEPS, s["batch"], s["seq_len"] + 1), dtype=np.int32)
        losses, norms, gradients, change = train(s, begin, tokens, torch.float64)
        losses32, _, gradients32, change32 = train(s, begin, tokens, torch.float32)
        data, listing = bytearray(), []
        for tensor, value in begin.items():
            entry = {"name": tensor, "rows": value.shape[0], "cols": value.shape[1], "offset": len(data) // 4}
            for part in (value, gradients[tensor].numpy(), change[tensor].numpy()):
                data += np.ascontiguousarray(part, dtype="<f4").tobytes()
            listing.append(entry)
        tokens_offset = len(data) // 4
        data += tokens.astype("<i4").tobytes()
        (OUT / f"{name}.bin").write_bytes(data)
        index["shapes"].append({
            "name": name, **s, "steps": STEPS, "losses": losses, "grad_norms": norms,
            "tokens_offset": tokens_offset,
            "parameters": listing,  # at offset: begin weights, gradient of step 1, change after all steps
            "float32": {
                "loss": max(abs(a - b) / b for a, b in zip(losses32, losses)),
                "gradients": max(relative(gradients32[n], gradients[n]) for n in begin if not n.endswith("qkv.bias")),
                "change": max(relative(change32[n], change[n]) for n in begin if not n.endswith("qkv.bias")),
            },
        })
        print(name, len(data), "bytes, float32 against float64:", index["shapes"][-1]["float32"])
    (OUT / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()

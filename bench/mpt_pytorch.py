# SPDX-License-Identifier: Apache-2.0
"""Trains an MPT in PyTorch, the plain way, on synthetic tokens, and prints one JSON object of what it took.

    python3 bench/mpt_pytorch.py POINT.json [--attention NAME] [--foreach]

POINT is the point of a run specification (docs/formats.md): fp32, one rank, no recomputation, learned positions, layernorm,
GELU, a tied head. The step is the trainer's: forward, mean cross-entropy of each next token, backward, clipping to norm 1,
AdamW with decoupled weight decay on matrices, learning rate set by the host.

Attention is what is fastest in this PyTorch, of
    softmax   scores + mask by baddbmm, softmax, bmm
    matmul    q @ k^T, masked_fill, softmax, @ v
    library   torch.nn.functional.scaled_dot_product_attention, causal (PyTorch 2)
`auto` is library where it exists, else softmax.
"""
import argparse
import json
import math
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, model, attention):
        super().__init__()
        d = model["d_model"]
        self.heads, self.width, self.attention = model["n_heads"], model["head_dim"], attention
        bias = model["biases"]
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * self.heads * self.width, bias=bias["qkv"])
        self.out = nn.Linear(self.heads * self.width, d, bias=bias["out"])
        self.up = nn.Linear(d, model["ffn"], bias=bias["mlp"])
        self.down = nn.Linear(model["ffn"], d, bias=bias["mlp"])

    def attend(self, x, mask):
        batch, seq, _ = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
        if self.attention == "library":
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.attention == "matmul":
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(self.width)
            out = scores.masked_fill(mask < 0, -math.inf).softmax(-1) @ v
        else:
            rows = batch * self.heads
            q, k, v = (t.reshape(rows, seq, self.width) for t in (q, k, v))
            scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(self.width))
            out = torch.bmm(scores.softmax(-1), v).view(batch, self.heads, seq, self.width)
        return self.out(out.transpose(1, 2).reshape(batch, seq, -1))

    def forward(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Mpt(nn.Module):
    def __init__(self, model, seq, attention):
        super().__init__()
        d = model["d_model"]
        self.tokens = nn.Embedding(model["vocab"], d)
        self.positions = nn.Embedding(seq, d)
        self.blocks = nn.ModuleList(Block(model, attention) for _ in range(model["n_layers"]))
        self.norm = nn.LayerNorm(d)
        self.register_buffer("mask", torch.full((seq, seq), -math.inf).triu(1))
        self.register_buffer("places", torch.arange(seq))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(self.places)
        for block in self.blocks:
            x = block(x, self.mask)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def cpu_times():
    """Seconds that the threads of this process ran, and that they waited for a CPU."""
    ran = waited = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat") as file:
                fields = file.read().split()
        except OSError:
            continue
        ran, waited = ran + int(fields[0]), waited + int(fields[1])
    return ran * 1e-9, waited * 1e-9


def refuse(point):
    wanted = {"precision": "fp32", "gpus": 1, "activation_checkpointing": "none", "data": "synthetic"}
    for key, value in wanted.items():
        if point[key] != value:
            sys.exit(f"mpt_pytorch.py: {key} is {point[key]}, this model can do {value} only")
    wanted = {"norm": "layernorm", "positions": "learned", "activation": "gelu_erf", "tied": True,
              "n_kv_heads": point["model"]["n_heads"]}
    for key, value in wanted.items():
        if point["model"][key] != value:
            sys.exit(f"mpt_pytorch.py: the model's {key} is {point['model'][key]}, this one can do {value} only")
    if point["microbatch_size"] != point["global_batch"]:
        sys.exit("mpt_pytorch.py: the batch is split into microbatches, this model can do one only")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("point", help="file with the point, - for stdin")
    parser.add_argument("--attention", choices=["auto", "softmax", "matmul", "library"], default="auto")
    parser.add_argument("--foreach", action="store_true", help="AdamW's foreach implementation")
    arguments = parser.parse_args()
    with sys.stdin if arguments.point == "-" else open(arguments.point) as file:
        point = json.load(file)
    refuse(point)
    attention = arguments.attention
    if attention == "auto":
        attention = "library" if hasattr(functional, "scaled_dot_product_attention") else "softmax"

    torch.set_num_threads(point["threads"])
    torch.manual_seed(point["seed"])
    batch, seq = point["global_batch"], point["seq_len"]
    model = Mpt(point["model"], seq, attention)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=point["model"]["lr"], betas=(0.9, 0.95), eps=1e-8, foreach=arguments.foreach or None)

    loss_value = norm = 0.0
    for step in range(point["steps"]):
        if step == point["warmup"]:
            start, (ran, waited) = time.monotonic(), cpu_times()
        for group in optimizer.param_groups:
            group["lr"] = point["model"]["lr"] * min(1, (step + 1) / 100)
        text = torch.randint(0, point["model"]["vocab"], (batch, seq + 1))
        optimizer.zero_grad(set_to_none=True)
        loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss_value = loss.item()
    seconds = time.monotonic() - start
    ran, waited = (after - before for after, before in zip(cpu_times(), (ran, waited)))
    measured = point["steps"] - point["warmup"]
    print(json.dumps({"tokens": measured * batch * seq, "seconds": seconds, "loss": loss_value,
                      "grad_norm": float(norm), "parameters": sum(p.numel() for p in model.parameters()),
                      "cpu_share": ran / (ran + waited) if ran > 0 else None, "attention": attention,
                      "version": torch.__version__, "threads": torch.get_num_threads()}))


main()

"""Trains MPT models in PyTorch on one GPU, the fast way, and prints tokens/s and MFU beside the trainer's.

    python3 bench/gpu_pytorch.py --out FILE [--models 125m 1b] [--programs DIR --gpu NAME --runs DIR] [--seconds N]

The step is the trainer's: random tokens, forward, mean cross-entropy of each next token, backward, clipping to norm 1, AdamW
with decoupled weight decay on matrices; bf16 autocast over f32 weights, fused AdamW, PyTorch's fused attention, torch.compile.
Each model is tried at the trainer's microbatch and at two and four times it (one microbatch is the batch); the fastest row
counts. MFU is in the mosaic convention (docs/formulas.md), of --peak TFLOP/s. With --programs the same models are trained by the
trainer too, at the same microbatches, and the ratio is printed.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as fault:
    sys.exit(f"{__doc__}\ngpu_pytorch.py: PyTorch is not here: {fault}")

SEQ = 2048
VOCAB = 50368
# MPT's shapes: yamls/models. The microbatch is that of scripts/gpu-check.sh.
MODELS = {
    "125m": {"d": 768, "layers": 12, "heads": 12, "microbatch": 32},
    "350m": {"d": 1024, "layers": 24, "heads": 16, "microbatch": 16},
    "1b": {"d": 2048, "layers": 24, "heads": 16, "microbatch": 16},
    "3b": {"d": 2560, "layers": 32, "heads": 20, "microbatch": 8},
}


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        batch, seq, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, d))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Mpt(nn.Module):
    def __init__(self, d, layers, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, d), nn.Embedding(SEQ, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, VOCAB).float(), targets.reshape(-1))


def flops_per_token(model):
    """Of the mosaic convention: 6 N + 12 L d T."""
    shape = MODELS[model]
    d, layers = shape["d"], shape["layers"]
    parameters = VOCAB * d + SEQ * d + layers * (12 * d * d + 13 * d) + 2 * d
    return 6 * parameters + 12 * layers * d * SEQ


def train(model, batch, seconds):
    """Tokens/s after compilation and warm-up, or None where memory is short."""
    shape = MODELS[model]
    device = "cuda"
    torch.manual_seed(17)
    net = Mpt(shape["d"], shape["layers"], shape["heads"]).to(device)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=2e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    compiled = torch.compile(net)

    def step():
        text = torch.randint(0, VOCAB, (batch, SEQ + 1), device=device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = compiled(text[:, :-1], text[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    for _ in range(5):
        loss = step()
    torch.cuda.synchronize()
    begin, steps = time.monotonic(), 0
    while time.monotonic() - begin < seconds or steps < 5:
        loss = step()
        steps += 1
        torch.cuda.synchronize()
    return steps * batch * SEQ / (time.monotonic() - begin), float(loss)


def rows_of_trainer(arguments, models):
    """The trainer's tokens/s by (model, microbatch), from runs that submit makes here."""
    out = pathlib.Path(arguments.out).resolve().parent
    programs = pathlib.Path(arguments.programs)
    cluster = out / "box.yaml"
    cluster.write_text(f"tessera_cluster: 1\nkind: local\nworkspace: {out}/runs\ngpus: {{{arguments.gpu}: {{per_node: 1}}}}\n")
    rows = {}
    for model in models:
        micro = MODELS[model]["microbatch"]
        subprocess.run([programs / "submit", "-c", cluster, "--gpu_types", arguments.gpu, "-g", "1", "-m", model, "-t", "bf16",
                        "--microbatch_size", str(micro), "--project", "pytorch", "--steps", "13", "--warmup", "3", "--RUN"],
                       check=False)
    subprocess.run([programs / "collect", "pytorch", "--workspace", out / "runs"], check=False, stdout=subprocess.DEVNULL)
    import csv
    for results in out.rglob("results.csv"):
        for row in csv.DictReader(results.open()):
            if row.get("status") == "ok":
                rows[row["label"]] = float(row["tokens_per_s"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="JSON of all rows")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["125m", "1b"])
    parser.add_argument("--peak", type=float, default=989.5, help="dense bf16 TFLOP/s (default: H100, H200 SXM)")
    parser.add_argument("--programs", help="folder of submit and collect: the trainer's rows beside PyTorch's")
    parser.add_argument("--gpu", default="h200", help="catalogue name of the GPU")
    parser.add_argument("--seconds", type=float, default=220, help="in all; what does not fit any more is left out")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu_pytorch.py: PyTorch sees no GPU")
    begin = time.monotonic()
    ours = rows_of_trainer(arguments, arguments.models) if arguments.programs else {}
    torch.set_float32_matmul_precision("high")
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}", flush=True)
    rows, best = [], {}
    for factor in (1, 2, 4):
        for model in arguments.models:
            if time.monotonic() - begin > arguments.seconds:
                print(f"{model}: no time is left for {factor} times the microbatch", flush=True)
                continue
            batch = MODELS[model]["microbatch"] * factor
            try:
                rate, loss = train(model, batch, 4)
            except torch.OutOfMemoryError:
                print(f"{model} microbatch {batch}: out of memory", flush=True)
                torch.cuda.empty_cache()
                continue
            mfu = 100 * rate * flops_per_token(model) / (arguments.peak * 1e12)
            rows.append({"model": model, "microbatch": batch, "tokens_per_s": rate, "mfu_pct": mfu, "loss": loss})
            best[model] = max(best.get(model, 0), rate)
            print(f"{model} microbatch {batch}: {rate:,.0f} tokens/s, {mfu:.1f} % MFU, loss {loss:.3f}", flush=True)
            torch.cuda.empty_cache()
            torch._dynamo.reset()
            with open(arguments.out, "w") as file:
                json.dump({"pytorch": rows, "trainer": ours}, file, indent=1)
    for model in arguments.models:
        if model in ours and model in best:
            print(f"{model}: ours {ours[model]:,.0f} tokens/s, {ours[model] / best[model]:.2f} x PyTorch's best", flush=True)


if __name__ == "__main__":
    main()

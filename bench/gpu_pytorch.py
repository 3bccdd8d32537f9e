# SPDX-License-Identifier: Apache-2.0
"""Trains MPT models in PyTorch on one GPU, the fast way, and prints tokens/s and MFU beside the trainer's.

    python3 bench/gpu_pytorch.py --out FILE [--models 125m 1b] [--rows CSV] [--programs DIR --work DIR --gpu NAME] [--seconds N]

The step is the trainer's: random tokens, forward, mean cross-entropy of each next token, backward, clipping to norm 1, AdamW
without weight decay, the learning rate set by the host; bf16 autocast over f32 weights, fused AdamW, PyTorch's fused attention,
torch.compile of the whole model. Each model is tried at the microbatch of scripts/gpu-check.sh and at two larger ones, as long
as memory and time last; a step has as many whole microbatches as fit the trainer's batch. After 3 s of warm-up 8 s are
measured, and the GPU is waited for once, at their end.

MFU is in the mosaic convention (docs/formulas.md), of --peak TFLOP/s. The trainer's rows are those of --rows (a results.csv of
collect); what is missing there the programs run, if they are given. What differs beyond the program: PyTorch's residual stream
is f32 under autocast, the trainer's is bf16.

Exit codes: 0 done, 1 no row of PyTorch could be measured, 2 usage.
"""
import argparse
import csv
import gc
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

# Before torch asks for memory: configurations of several sizes in one process.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as missing:
    sys.exit(f"gpu_pytorch.py: PyTorch is not here: {missing}")

SEQ = 2048
VOCAB = 50368
# MPT's shapes and learning rates: yamls/models. The batch and the first microbatch are those of scripts/gpu-check.sh.
MODELS = {
    "125m": {"d": 768, "layers": 12, "heads": 12, "lr": 6.0e-4, "batch": 128, "microbatches": (32, 64, 96)},
    "1b": {"d": 2048, "layers": 24, "heads": 16, "lr": 2.0e-4, "batch": 32, "microbatches": (16, 24, 32)},
    "3b": {"d": 2560, "layers": 32, "heads": 20, "lr": 1.6e-4, "batch": 32, "microbatches": (8, 12, 16)},
}
WARM_UP_S = 3
MEASURE_S = 8
COMPILE_S = 60  # of a model that was not compiled yet; more than was seen, so that none is begun in vain
SUBMIT_S = 90
COLLECT_S = 20


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


def microbatches_a_step(model, microbatch):
    return max(1, MODELS[model]["batch"] // microbatch)


def train(model, microbatch, device="cuda"):
    """(tokens/s, last loss) after compilation and warm-up."""
    shape = MODELS[model]
    count = microbatches_a_step(model, microbatch)
    torch.manual_seed(17)
    net = Mpt(shape["d"], shape["layers"], shape["heads"]).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=shape["lr"], betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, fused=True)
    compiled = torch.compile(net, dynamic=False)
    done = 0

    def step():
        nonlocal done
        done += 1
        for group in optimizer.param_groups:
            group["lr"] = shape["lr"] * min(1.0, done / 100)
        optimizer.zero_grad(set_to_none=True)
        for _ in range(count):
            text = torch.randint(0, VOCAB, (microbatch, SEQ + 1), device=device)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = compiled(text[:, :-1], text[:, 1:])
            (loss / count).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    step()
    torch.cuda.synchronize()
    begin, warm = time.monotonic(), 0
    while warm < 3 or time.monotonic() - begin < WARM_UP_S:
        step()
        torch.cuda.synchronize()
        warm += 1
    # A step that is waited for takes no less than one that is not.
    steps = max(5, math.ceil(1.05 * MEASURE_S * warm / (time.monotonic() - begin)))
    begin = time.monotonic()
    for _ in range(steps):
        loss = step()
    torch.cuda.synchronize()
    return steps * count * microbatch * SEQ / (time.monotonic() - begin), float(loss.detach())


def is_out_of_memory(fault):
    return type(fault).__name__ == "OutOfMemoryError" or "out of memory" in str(fault).lower()


def attempt(model, microbatch):
    """((tokens/s, loss), None) or (None, what went wrong); its memory is free again."""
    rate, fault = None, None
    try:
        rate = train(model, microbatch)
    except Exception as error:  # a model that fails must not take the others' rows with it
        text = str(error).strip().splitlines()
        fault = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {text[0][:200] if text else ''}"
    try:
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    except Exception as error:
        fault = fault or f"{type(error).__name__} behind it: {error}"
    return rate, fault


def read_rows(path):
    """The trainer's rows with a result, of one GPU at SEQ, by (model, microbatch)."""
    rows = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row["Throughput (T/s)"] and row["SeqLen (T)"] == str(SEQ) and row["# GPUs"] == "1":
                rows[row["label"], int(row["MicroBatchSize"])] = {
                    "tokens_per_s": float(row["Throughput (T/s)"]), "mfu_pct": float(row["MFU"] or "nan"), "status": row["status"]}
    return rows


def run_limited(command, seconds):
    """(exit code or None when its time was over, stdout and stderr). submit tells its trainer to end when it is told itself."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            text, _ = process.communicate(timeout=seconds)
            return process.returncode, text
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            text, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        return None, text


def end_runs(runs):
    """Kills trainers that are alive behind their submit: they are in sessions of their own and would keep the GPU's memory."""
    for file in runs.glob("*/*/run.*.pid"):
        try:
            pid = json.loads(file.read_text())["pid"]
            if os.fsencode(file.with_suffix(".json")) in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.killpg(pid, signal.SIGKILL)
        except (OSError, ValueError, KeyError):
            pass  # it has ended


def last_line(text):
    return (text.strip().splitlines() or ["it says nothing"])[-1][:300]


def run_rows(arguments, models):
    """Runs the trainer at the first microbatch of each model, and reads its rows."""
    programs, work = pathlib.Path(arguments.programs), pathlib.Path(arguments.work).resolve()
    cluster = work / "pytorch-box.yaml"
    cluster.write_text(f"tessera_cluster: 1\nkind: local\nworkspace: {work}/runs\ngpus: {{{arguments.gpu}: {{per_node: 1}}}}\n")
    for model in models:
        shape = MODELS[model]
        print(f"{model}: no row of the trainer yet, it is run", flush=True)
        code, text = run_limited(
            [programs / "submit", "-c", cluster, "--gpu_types", arguments.gpu, "-g", "1", "-m", model, "-t", "bf16", "--seq_lens",
             str(SEQ), "--batch_sizes", str(shape["batch"]), "--microbatch_size", str(shape["microbatches"][0]), "--project",
             "pytorch", "--steps", "13", "--warmup", "3", "--RUN"], SUBMIT_S)
        end_runs(work / "runs")
        if code is None:
            print(f"{model}: the trainer did not end in {SUBMIT_S} s", flush=True)
        elif code != 0:
            print(f"{model}: submit ended with code {code}: {last_line(text)}", flush=True)
    results = work / "pytorch-rows"
    code, text = run_limited([programs / "collect", "pytorch", "--workspace", work / "runs", "-s", results], COLLECT_S)
    if code != 0:
        raise RuntimeError(f"collect ended with code {code}: {last_line(text)}")
    return read_rows(f"{results}.csv")


def rows_of_trainer(arguments):
    """What is wrong is said, and costs rows of the trainer alone."""
    rows = {}
    try:
        if arguments.rows and os.path.exists(arguments.rows):
            rows = read_rows(arguments.rows)
        lacking = [model for model in arguments.models if (model, MODELS[model]["microbatches"][0]) not in rows]
        if lacking and arguments.programs:
            rows.update(run_rows(arguments, lacking))
    except Exception as error:
        print(f"the trainer's rows cannot be read: {type(error).__name__}: {error}", flush=True)
    for (model, microbatch), row in sorted(rows.items()):
        if model in arguments.models:
            status = "" if row["status"] == "ok" else f" ({row['status']})"
            print(f"{model} microbatch {microbatch}: the trainer: {row['tokens_per_s']:,.0f} tokens/s, {row['mfu_pct']:.1f} % MFU"
                  f"{status}", flush=True)
    if not rows:
        print("there are no rows of the trainer to compare with", flush=True)
    return rows


def measure(arguments, begin, ours):
    """PyTorch's rows. The first microbatch of every model comes before the second of any."""
    rows, stopped, taken = [], set(), {}
    for nth in range(3):
        for model in arguments.models:
            if model in stopped:
                continue
            microbatch = MODELS[model]["microbatches"][nth]
            name = f"{model} microbatch {microbatch}"
            needed = 1.1 * taken[model] if model in taken else COMPILE_S + WARM_UP_S + MEASURE_S
            left = arguments.seconds - (time.monotonic() - begin)
            if left < needed:
                print(f"{name}: not tried, {max(0, left):.0f} s are left and {needed:.0f} s needed", flush=True)
                stopped.add(model)
                continue
            since = time.monotonic()
            done, fault = attempt(model, microbatch)
            taken[model] = time.monotonic() - since
            if fault:
                print(f"{name}: {fault}", flush=True)
                stopped.add(model)
            if done:
                rate, loss = done
                mfu = 100 * rate * flops_per_token(model) / (arguments.peak * 1e12)
                rows.append({"model": model, "microbatch": microbatch, "microbatches_a_step": microbatches_a_step(model, microbatch),
                             "tokens_per_s": rate, "mfu_pct": mfu, "loss": loss})
                print(f"{name} x {microbatches_a_step(model, microbatch)}: PyTorch: {rate:,.0f} tokens/s, {mfu:.1f} % MFU, "
                      f"loss {loss:.3f} ({taken[model]:.0f} s)", flush=True)
            write(arguments.out, rows, ours)
    return rows


def write(path, rows, ours):
    """Whole or not at all: this process may be ended at any time."""
    trainer = [{"model": model, "microbatch": microbatch, **row} for (model, microbatch), row in ours.items()]
    with open(f"{path}.new", "w") as file:
        json.dump({"torch": str(torch.__version__), "pytorch": rows, "trainer": trainer}, file, indent=1)
    os.replace(f"{path}.new", path)


def compare(models, rows, ours):
    for model in models:
        theirs = [row for row in rows if row["model"] == model]
        first = MODELS[model]["microbatches"][0]
        if not theirs or (model, first) not in ours:
            print(f"{model}: no comparison, {'PyTorch' if not theirs else 'the trainer'} has no row", flush=True)
            continue
        mine = ours[model, first]["tokens_per_s"]
        text = f"{model}: the trainer has {mine:,.0f} tokens/s at microbatch {first}"
        for row in theirs:
            if row["microbatch"] == first:
                text += f", {mine / row['tokens_per_s']:.2f} x PyTorch at the same"
        best = max(theirs, key=lambda row: row["tokens_per_s"])
        print(text + f", {mine / best['tokens_per_s']:.2f} x PyTorch's best (microbatch {best['microbatch']})", flush=True)
    print("PyTorch: residual stream f32 (autocast), the trainer's bf16; both: no weight decay, clipping, AdamW on f32 weights", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="JSON of all rows")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["125m", "1b"])
    parser.add_argument("--peak", type=float, default=989.5, help="dense bf16 TFLOP/s (default: H100, H200 SXM)")
    parser.add_argument("--rows", help="results.csv of collect: the trainer's rows")
    parser.add_argument("--programs", help="folder of submit and collect, for rows that are not there; goes with --work")
    parser.add_argument("--work", help="folder for the trainer's runs")
    parser.add_argument("--gpu", default="h200", help="catalogue name of the GPU")
    parser.add_argument("--seconds", type=float, default=220, help="in all; what does not fit any more is left out")
    arguments = parser.parse_args()
    if bool(arguments.programs) != bool(arguments.work):
        parser.error("--programs and --work go together")
    if not torch.cuda.is_available():
        sys.exit("gpu_pytorch.py: PyTorch sees no GPU")
    begin = time.monotonic()
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}", flush=True)
    ours = rows_of_trainer(arguments)
    torch.set_float32_matmul_precision("high")
    rows = measure(arguments, begin, ours)
    compare(arguments.models, rows, ours)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens/s of the trainer beside PyTorch's, on this machine's CPUs, and both beside the sgemm peak measured in the same run.

    bench/compare_pytorch.py [--threads N] [--rounds N] [--shapes 125m/512/4,bench/mpt-25m.yaml/256/4] [--json]

A round measures the peak, the trainer, PyTorch as it comes and PyTorch with the memory of earlier steps kept by malloc, one
after the other, so that what else the machine does meets all of them; the table shows medians over rounds and, of the ratio,
the median of each round's own. The peak is the best of all rounds. A round in which a program had less than 90 % of the CPU
time that it wanted is repeated, at most --tries more times; if none is left undisturbed, all rounds count and the table says so.

Exit codes: 0 done, 1 a program failed, 2 usage.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BINARIES = HERE.parent / "build" / "release" / "bin"
UNDISTURBED = 0.9
# Large blocks come from the heap and stay there: no page is given back and faulted in anew at each step.
KEPT = "glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184:glibc.malloc.hugetlb=1"
NAMES = {"trainer": "Tessera", "pytorch": "PyTorch", "pytorch_kept": "PyTorch, memory kept"}


def fail(text):
    print("compare_pytorch.py: " + text, file=sys.stderr)
    sys.exit(1)


def output_of(command, environment, **rest):
    result = subprocess.run(command, env=environment, capture_output=True, text=True, **rest)
    if result.returncode != 0:
        fail(f"{' '.join(map(str, command[:2]))} ended with code {result.returncode}: {result.stderr.strip()[-500:]}")
    return result.stdout


def records(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"tessera":')]


def point_of(model, seq, batch, arguments, environment):
    """The point that submit plans for this shape, as the trainer and docs/formats.md know it."""
    plan = json.loads(output_of(
        [BINARIES / "submit", "-m", model, "-t", "fp32", "--gpu_types", "cpu", "--seq_lens", str(seq), "--batch_sizes",
         str(batch), "--microbatch_size", str(batch), "--axis", f"threads={arguments.threads}", "--steps",
         str(arguments.steps), "--warmup", str(arguments.warmup), "--project", "bench", "--json"], environment))
    if len(plan["points"]) != 1:
        fail(f"{model}/{seq}/{batch} is not one point that fits this machine: {plan['dropped']}")
    return plan["points"][0]


def specification(planned, peak_tflops):
    return {"schema": 1, "project": "bench", "id": planned["id"], "run": f"bench--{planned['slug']}-{planned['id']}",
            "label": planned["label"], "repeat": 1, "repeats": 1, "attempt": 1, "derived_from": None, "user": "",
            "job": None, "point": planned["point"], "expect": [],
            "peak": {"tflops": peak_tflops, "source": "measured in the same round"}, "paths": {"run_dir": None},
            "shared_with": 0, "log_every": 1}


def run_trainer(planned, peak_tflops, environment):
    log = records(output_of([BINARIES / "trainer", "--spec", "-"], environment,
                            input=json.dumps(specification(planned, peak_tflops))))
    footer = next(record for record in log if record["t"] == "footer")
    software = next(record for record in log if record["t"] == "software")
    model = next(record for record in log if record["t"] == "model")
    return {"tokens_per_s": footer["tokens"] / footer["measured_s"], "cpu_share": footer.get("cpu_share"),
            "parameters": model["n_params"], "loss": footer["loss_last"], "blas": software.get("blas"),
            "environment": software.get("env", {})}


def run_pytorch(planned, arguments, environment, tunables):
    environment = dict(environment)
    if tunables:
        environment["GLIBC_TUNABLES"] = tunables
    result = json.loads(output_of([arguments.python, HERE / "mpt_pytorch.py", "-"], environment,
                                  input=json.dumps(planned["point"])))
    return {"tokens_per_s": result["tokens"] / result["seconds"], "cpu_share": result["cpu_share"],
            "parameters": result["parameters"], "loss": result["loss"], "attention": result["attention"],
            "version": result["version"]}


def model_flops_per_token(parameters, model, seq):
    """The mosaic convention (docs/formulas.md): 3 (2 N S + 4 L a S^2) a sequence."""
    return 6 * parameters + 12 * model["n_layers"] * model["n_heads"] * model["head_dim"] * seq


def share_of(run):
    return 1.0 if run["cpu_share"] is None else run["cpu_share"]


def is_undisturbed(one):
    """The peak does not count: the best of all rounds is taken."""
    return all(share_of(one[who]) >= UNDISTURBED for who in NAMES)


def compare(shape, arguments, environment):
    model, seq, batch = shape.rsplit("/", 2)
    planned = point_of(model, int(seq), int(batch), arguments, environment)
    rounds = []
    for number in range(arguments.rounds + arguments.tries):
        peak = json.loads(output_of(
            [BINARIES / "trainer", "--measure-peak", "--threads", str(arguments.threads)], environment))
        one = {"peak": {"tflops": peak["tflops"], "cpu_share": peak["cpu_share"]},
               "trainer": run_trainer(planned, peak["tflops"], environment)}
        # PyTorch gets the BLAS kernels that the trainer chose: the library takes a newer CPU for an old one.
        for key, value in one["trainer"]["environment"].items():
            if key.startswith("OPENBLAS_"):
                environment.setdefault(key, value)
        one["pytorch"] = run_pytorch(planned, arguments, environment, None)
        one["pytorch_kept"] = run_pytorch(planned, arguments, environment, KEPT)
        rounds.append(one)
        print(f"{shape} round {number + 1}: " + ", ".join(
            f"{NAMES[who]} {one[who]['tokens_per_s']:.0f} tokens/s ({100 * share_of(one[who]):.0f} % of its CPU time)"
            for who in NAMES) + f", peak {1000 * one['peak']['tflops']:.0f} GFLOP/s", file=sys.stderr)
        if sum(map(is_undisturbed, rounds)) >= arguments.rounds:
            break
    return summary(shape, planned["point"], rounds)


def summary(shape, point, rounds):
    undisturbed = [one for one in rounds if is_undisturbed(one)]
    used = undisturbed or rounds
    peak = max(one["peak"]["tflops"] for one in rounds)
    parameters = used[0]["trainer"]["parameters"]
    if parameters != used[0]["pytorch"]["parameters"]:
        fail(f"{shape}: {parameters} parameters here, {used[0]['pytorch']['parameters']} in PyTorch")
    flops = model_flops_per_token(parameters, point["model"], point["seq_len"])
    model, rest = shape.split("/")[-3].removesuffix(".yaml"), "/".join(shape.split("/")[-2:])
    result = {"shape": f"{model}/{rest}", "parameters": parameters, "model_flops_per_token": flops, "peak_tflops": peak,
              "threads": point["threads"], "steps": point["steps"], "warmup": point["warmup"],
              "rounds": len(rounds), "rounds_used": len(used), "undisturbed": bool(undisturbed),
              "lowest_cpu_share": min(share_of(one[who]) for one in used for who in NAMES),
              "pytorch_version": used[0]["pytorch"]["version"], "attention": used[0]["pytorch"]["attention"],
              "blas": used[0]["trainer"]["blas"], "measured": rounds}
    for who in NAMES:
        rate = statistics.median(one[who]["tokens_per_s"] for one in used)
        result[who] = {"tokens_per_s": rate, "share_of_peak": rate * flops / (peak * 1e12),
                       "ratio": statistics.median(one["trainer"]["tokens_per_s"] / one[who]["tokens_per_s"] for one in used)}
    return result


def table(results):
    lines = [f"{'model/seq/batch':<26}{'program':<24}{'tokens/s':>10}{'of peak':>9}{'Tessera is':>12}"]
    for result in results:
        for number, (who, name) in enumerate(NAMES.items()):
            figures = result[who]
            ratio = "" if who == "trainer" else f"{figures['ratio']:.2f} x"
            lines.append(f"{result['shape'] if number == 0 else '':<26}{name:<24}{figures['tokens_per_s']:>10.0f}"
                         f"{100 * figures['share_of_peak']:>7.1f} %{ratio:>12}")
        lines.append(f"{'':<26}sgemm peak {1000 * result['peak_tflops']:.0f} GFLOP/s, {result['rounds_used']} of "
                     f"{result['rounds']} rounds, least CPU share {100 * result['lowest_cpu_share']:.0f} %"
                     + ("" if result["undisturbed"] else ": DISTURBED, other work ran beside all rounds"))
    first = results[0]
    lines.append(f"fp32, {first['threads']} threads, {first['steps'] - first['warmup']} measured steps a run; PyTorch "
                 f"{first['pytorch_version']}, attention by {first['attention']}; model FLOPs by the mosaic convention")
    return "\n".join(lines)


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)), help="of all programs (default: all CPUs)")
    parser.add_argument("--rounds", type=positive, default=3, help="undisturbed rounds wanted (default 3)")
    parser.add_argument("--tries", type=int, default=6, help="rounds more while others were disturbed (default 6)")
    parser.add_argument("--steps", type=positive, default=6, help="steps of a run, warm-up included (default 6)")
    parser.add_argument("--warmup", type=positive, default=2, help="of them not measured (default 2)")
    parser.add_argument("--shapes", default=f"125m/512/4,{HERE / 'mpt-25m.yaml'}/256/4", help="MODEL/SEQ/BATCH, with commas between")
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead of the table")
    arguments = parser.parse_args()
    if arguments.warmup >= arguments.steps:
        parser.error("--warmup must be less than --steps")
    shapes = arguments.shapes.split(",")
    for shape in shapes:
        if shape.count("/") < 2 or not all(part.isdigit() for part in shape.rsplit("/", 2)[1:]):
            parser.error(f"--shapes: '{shape}' is not MODEL/SEQ/BATCH")
    for program in ("submit", "trainer"):
        if not (BINARIES / program).exists():
            fail(f"{BINARIES / program} is missing: cmake --preset release && cmake --build --preset release")
    if subprocess.run([arguments.python, "-c", "import torch"], capture_output=True).returncode != 0:
        fail(f"{arguments.python} has no torch: install the Debian package python3-torch, or --python one that has")
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    results = [compare(shape, arguments, environment) for shape in shapes]
    print(json.dumps(results, indent=1) if arguments.json else table(results))


main()

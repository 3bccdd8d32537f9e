# SPDX-License-Identifier: Apache-2.0
"""bench/gpu_pytorch.py without PyTorch and without a GPU: what it tries, measures, says and keeps. stubs/torch stands for PyTorch; the
trainer's rows come from a real submit, trainer and collect (of TESSERA_BIN), on the CPU.
"""
import contextlib
import csv
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REAL = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build/release/bin")).resolve()
sys.path[:0] = [str(HERE / "stubs"), str(ROOT / "bench")]
sys.dont_write_bytecode = True
import gpu_pytorch  # noqa: E402
import torch  # noqa: E402

D = {"125m": 768, "1b": 2048}
# As results.csv has them: what is read, among others.
COLUMNS = ["Model", "SeqLen (T)", "# GPUs", "MFU", "MicroBatchSize", "Throughput (T/s)", "status", "label"]


class GpuPytorch(unittest.TestCase):
    def setUp(self):
        torch.world = self.world = torch.World()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "pytorch.json"

    def run_main(self, *arguments):
        """(exit code, what it printed), by the stub's clock."""
        printed = io.StringIO()
        clock = mock.Mock(monotonic=self.world.monotonic)
        with mock.patch.object(gpu_pytorch, "time", clock), contextlib.redirect_stdout(printed), \
                mock.patch.object(sys, "argv", ["gpu_pytorch.py", "--out", str(self.out), *map(str, arguments)]):
            code = gpu_pytorch.main()
        return code, printed.getvalue()

    def kept(self):
        return json.loads(self.out.read_text())

    def rows_file(self, *rows):
        path = self.folder / "rows.csv"
        with open(path, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
        return path

    def test_measures_what_the_gpu_takes_and_waits_once(self):
        self.world.rate = lambda d, microbatch: 90_000.0
        rate, loss = gpu_pytorch_train(self.world, "1b", 16)
        # One wait in all of the measured time: 0.02 s in 8 s or more.
        self.assertLess(rate, 90_000)
        self.assertGreater(rate, 90_000 * 8 / 8.02)
        self.assertEqual(loss, 10.8)
        calls = "".join({"synchronize": "w", "step": "s", "backward": "b"}[call] for call in self.world.calls)
        # The batch of 32 is two microbatches; compilation, warm-up, measurement.
        found = re.fullmatch(r"bbsw((?:bbsw)+)((?:bbs)+)w", calls)
        self.assertIsNotNone(found, calls)
        a_step = 32 * 2048 / 90_000
        self.assertGreaterEqual(len(found[1]) / 4 * (a_step + 0.02), 3)
        self.assertGreaterEqual(len(found[2]) / 3 * a_step, 8)

    def test_first_microbatches_come_first_and_ratios_are_printed(self):
        self.world.rate = lambda d, microbatch: 1e5 + 1000 * microbatch if d == D["125m"] else 5e4 - 1000 * microbatch
        rows = self.rows_file(["125m", 2048, 1, 40.5, 32, 264000, "ok", "125m"], ["1b", 2048, 1, 45, 16, 34000, "ok", "1b"],
                              ["1b", 8192, 1, 45, 16, 1, "ok", "1b"], ["3b", 2048, 1, "", 8, "", "oom", "3b"])
        code, text = self.run_main("--rows", rows, "--seconds", 1000)
        self.assertEqual(code, 0)
        self.assertEqual(re.findall(r"^(\w+) microbatch (\d+) x (\d+): PyTorch", text, re.M),
                         [("125m", "32", "4"), ("1b", "16", "2"), ("125m", "64", "2"), ("1b", "24", "1"), ("125m", "96", "1"),
                          ("1b", "32", "1")])
        self.assertIn("125m microbatch 32: the trainer: 264,000 tokens/s, 40.5 % MFU", text)
        self.assertRegex(text, r"125m: the trainer has 264,000 .* 2\.00 x PyTorch at the same, 1\.3\d x PyTorch's best \(microbatch 96\)")
        self.assertRegex(text, r"1b: the trainer has 34,000 .* 1\.00 x PyTorch at the same, 1\.00 x PyTorch's best \(microbatch 16\)")
        self.assertEqual(self.world.calls.count("reset"), 6)
        self.assertEqual(self.world.calls.count("empty_cache"), 6)
        kept = self.kept()
        self.assertEqual(len(kept["pytorch"]), 6)
        self.assertEqual({(row["model"], row["tokens_per_s"]) for row in kept["trainer"]}, {("125m", 264000.0), ("1b", 34000.0)})

    def test_mfu_is_the_conventions(self):
        # 6 N + 12 L d T (docs/formulas.md). A block: qkv and out, up and down with their biases, two norms.
        block = (3 + 1) * (768 * 768 + 768) + (768 + 1) * 3072 + (3072 + 1) * 768 + 2 * 2 * 768
        parameters = (50368 + 2048) * 768 + 12 * block + 2 * 768
        self.assertEqual(gpu_pytorch.flops_per_token("125m"), 6 * parameters + 12 * 12 * 768 * 2048)

    def test_out_of_memory_ends_the_larger_ones_of_that_model_alone(self):
        self.world.fault = lambda d, microbatch: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 12 GiB") \
            if (d, microbatch) == (D["125m"], 64) else None
        code, text = self.run_main("--seconds", 1000)
        self.assertEqual(code, 0)
        self.assertIn("125m microbatch 64: out of memory\n", text)
        self.assertNotIn("125m microbatch 96", text)
        self.assertIn("1b microbatch 32 x 1: PyTorch", text)
        self.assertEqual(self.world.calls.count("empty_cache"), 5)
        self.assertIn("there are no rows of the trainer", text)
        self.assertIn("125m: no comparison, the trainer has no row", text)

    def test_any_fault_of_a_model_leaves_the_other_its_rows(self):
        self.world.fault = lambda d, microbatch: ValueError("no lowering\nof this") if d == D["125m"] else None
        code, text = self.run_main("--seconds", 1000)
        self.assertEqual(code, 0)
        self.assertIn("125m microbatch 32: ValueError: no lowering\n", text)
        self.assertEqual({row["model"] for row in self.kept()["pytorch"]}, {"1b"})
        self.assertIn("125m: no comparison, PyTorch has no row", text)

    def test_nothing_measured_is_a_failure(self):
        self.world.fault = lambda d, microbatch: RuntimeError("CUDA error: an illegal memory access was encountered")
        code, text = self.run_main("--seconds", 1000)
        self.assertEqual(code, 1)
        self.assertEqual(self.kept()["pytorch"], [])

    def test_nothing_is_begun_that_does_not_fit(self):
        # 30 s to compile, 3 and 8 s to run, and the steps that each begin or end with: some 42 s.
        code, text = self.run_main("--seconds", 130)
        self.assertEqual(code, 0)
        self.assertEqual(re.findall(r"^(\w+) microbatch (\d+) x", text, re.M), [("125m", "32"), ("1b", "16")])
        self.assertRegex(text, r"125m microbatch 64: not tried, \d+ s are left and \d+ s needed")
        # A model that was never compiled must have a minute for it.
        self.setUp()
        _, text = self.run_main("--seconds", 100)
        self.assertRegex(text, r"1b microbatch 16: not tried, \d+ s are left and 71 s needed")

    def test_rows_that_cannot_be_read_are_said(self):
        path = self.folder / "other.csv"
        path.write_text("model,tokens_per_s\n125m,1\n")
        code, text = self.run_main("--rows", path, "--seconds", 1000)
        self.assertEqual(code, 0)
        self.assertIn("the trainer's rows cannot be read: KeyError: 'Throughput (T/s)'", text)
        self.assertEqual(len(self.kept()["pytorch"]), 6)

    def programs(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("submit", "trainer"):
            shutil.copy(HERE / "programs" / name, programs)
        (programs / "collect").symlink_to(REAL / "collect")
        return programs

    def test_rows_of_real_programs(self):
        programs = self.programs()
        shape = dict(d_model=16, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=16, ffn="FFN", vocab=64, max_seq_len=2048)
        (self.folder / "tiny").write_text(
            "tessera_model: 1\nname: NAME\n" + "".join(f"{key}: {value}\n" for key, value in shape.items()) +
            "norm: layernorm\npositions: learned\nactivation: gelu_erf\nbiases: {qkv: true, out: true, mlp: true, norm: true}\n"
            "tied: true\nlr: 1.0e-3\n")
        environment = {"FAKE": "", "REAL": str(REAL), "CALLS": "/dev/null", "MODELS": str(self.folder), "FAKE_BATCH": "32",
                       "FAKE_STEPS": "2", "TESSERA_STATE_DIR": str(self.folder / "state")}
        here = set(os.listdir())
        with mock.patch.dict(os.environ, environment):
            code, text = self.run_main("--programs", programs, "--work", self.folder, "--models", "125m", "--seconds", 1000)
        self.assertEqual(code, 0, text)
        self.assertEqual(set(os.listdir()), here)
        with open(self.folder / "pytorch-rows.csv", newline="") as file:
            row, = csv.DictReader(file)
        rate = float(row["Throughput (T/s)"])
        self.assertGreater(rate, 0)
        same = next(theirs["tokens_per_s"] for theirs in self.kept()["pytorch"] if theirs["microbatch"] == 32)
        self.assertIn(f"125m: the trainer has {rate:,.0f} tokens/s at microbatch 32, {rate / same:.2f} x PyTorch at the same", text)
        # Once they are there, nothing is run.
        with mock.patch.object(gpu_pytorch, "run_rows", side_effect=AssertionError):
            _, text = self.run_main("--rows", self.folder / "pytorch-rows.csv", "--programs", "none", "--work", self.folder, "--models",
                                    "125m", "--seconds", 1000)
        self.assertIn(f"the trainer: {rate:,.0f} tokens/s", text)

    def test_programs_that_fail_cost_their_rows_alone(self):
        programs = self.programs()
        (programs / "submit").write_text("#!/bin/sh\necho 'submit: --microbatch_size: does not fit' >&2\nexit 5\n")
        code, text = self.run_main("--programs", programs, "--work", self.folder, "--seconds", 1000)
        self.assertEqual(code, 0)
        self.assertIn("125m: submit ended with code 5: submit: --microbatch_size: does not fit", text)
        self.assertRegex(text, r"the trainer's rows cannot be read: RuntimeError: collect ended with code [1-9]")
        self.assertEqual(len(self.kept()["pytorch"]), 6)

    def test_a_submit_that_hangs_is_ended(self):
        programs = self.programs()
        (programs / "submit").write_text("#!/bin/sh\nexec sleep 1000\n")
        begin = time.monotonic()
        with mock.patch.object(gpu_pytorch, "SUBMIT_S", 0.5):
            _, text = self.run_main("--programs", programs, "--work", self.folder, "--models", "1b", "--seconds", 1000)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertIn("1b: the trainer did not end in 0.5 s", text)

    def test_trainers_that_outlive_their_submit_are_killed_and_no_other_process(self):
        run = self.folder / "runs" / "pytorch" / "a-run"
        run.mkdir(parents=True)
        deaf = "trap '' TERM; while :; do sleep 0.1; done"
        mine = subprocess.Popen(["bash", "-c", deaf, "trainer", "--spec", run / "run.1.json"], start_new_session=True)
        other = subprocess.Popen(["bash", "-c", deaf, "trainer", "--spec", run / "run.2.json"], start_new_session=True)
        try:
            (run / "run.1.pid").write_text(json.dumps({"host": "h", "boot": "b", "pid": mine.pid, "start_ticks": 1, "user": "u"}))
            (run / "run.7.pid").write_text(json.dumps({"pid": other.pid}))  # the number is another's by now
            (run / "run.8.pid").write_text("{}")
            gpu_pytorch.end_runs(self.folder / "runs")
            self.assertEqual(mine.wait(timeout=10), -9)
            self.assertIsNone(other.poll())
        finally:
            for process in (mine, other):
                process.kill()
                process.wait()


def gpu_pytorch_train(world, model, microbatch):
    with mock.patch.object(gpu_pytorch, "time", mock.Mock(monotonic=world.monotonic)):
        return gpu_pytorch.train(model, microbatch)


if __name__ == "__main__":
    unittest.main()

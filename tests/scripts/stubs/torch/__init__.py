# SPDX-License-Identifier: Apache-2.0
"""As much of PyTorch as bench/gpu_pytorch.py calls. Nothing is computed: the time that a GPU would take is queued, and the clock stands
still until the host waits for it, so that a measurement that does not wait, or waits too often, shows.

`world` is what a test sets and reads: `rate(d, microbatch)` in tokens/s, `fault(d, microbatch)`, what compiling and waiting cost, and `calls`.
"""
import os
from types import SimpleNamespace

from . import nn

__version__ = "0.stub"
version = SimpleNamespace(cuda="0.0")
bfloat16 = "bfloat16"


class OutOfMemoryError(RuntimeError):
    pass


class World:
    def __init__(self):
        self.now = 1000.0
        self.queued = 0.0
        self.calls = []
        self.compile_s = 30.0
        self.wait_s = 0.02  # what the GPU loses at each wait
        self.rate = lambda d, microbatch: 100_000.0
        self.fault = lambda d, microbatch: None

    def monotonic(self):
        return self.now


world = World()


class Tensor:
    def __init__(self, *shape):
        self.shape = shape

    def __getitem__(self, _):
        return self


class Loss:
    def __truediv__(self, _):
        return self

    def backward(self):
        world.calls.append("backward")

    def detach(self):
        return self

    def __float__(self):
        return 10.8


def manual_seed(_):
    pass


def set_float32_matmul_precision(_):
    pass


def randint(low, high, shape, device):
    return Tensor(*shape)


class autocast:
    def __init__(self, device, dtype):
        assert (device, dtype) == ("cuda", bfloat16)

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def compile(net, dynamic):
    compiled = False

    def run(tokens, targets):
        nonlocal compiled
        if not compiled:
            world.now += world.compile_s
        compiled = True
        microbatch, columns = tokens.shape
        fault = world.fault(net.norm.width, microbatch)
        if fault:
            raise fault
        world.queued += microbatch * (columns - 1) / world.rate(net.norm.width, microbatch)
        return Loss()

    return run


def _synchronize():
    world.calls.append("synchronize")
    world.now += world.queued + world.wait_s
    world.queued = 0.0


class _AdamW:
    def __init__(self, parameters, lr, weight_decay, fused, **_):
        assert list(parameters) and fused and weight_decay == 0
        self.param_groups = [{"lr": lr}]

    def zero_grad(self, set_to_none):
        pass

    def step(self):
        world.calls.append("step")


optim = SimpleNamespace(AdamW=_AdamW)
cuda = SimpleNamespace(is_available=lambda: "STUB_NO_GPU" not in os.environ, get_device_name=lambda: "stub",
                       synchronize=_synchronize, empty_cache=lambda: world.calls.append("empty_cache"))
_dynamo = SimpleNamespace(reset=lambda: world.calls.append("reset"))

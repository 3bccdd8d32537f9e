# SPDX-License-Identifier: Apache-2.0
"""Modules that hold parameters and compute nothing."""
from types import SimpleNamespace


class Module:
    def parameters(self):
        for value in vars(self).values():
            if isinstance(value, Module):
                yield from value.parameters()

    def to(self, _):
        return self


class _Parameter:
    def __init__(self, dimensions):
        self.dimensions = dimensions

    def dim(self):
        return self.dimensions


class _Layer(Module):
    def __init__(self, *sizes):
        self.width = sizes[-1]
        self.weight = _Parameter(len(sizes))

    def parameters(self):
        yield self.weight


LayerNorm = Linear = Embedding = _Layer


class ModuleList(Module):
    def __init__(self, modules):
        self.modules = list(modules)

    def parameters(self):
        for module in self.modules:
            yield from module.parameters()


functional = SimpleNamespace()
init = SimpleNamespace(normal_=lambda parameter, std: None)
utils = SimpleNamespace(clip_grad_norm_=lambda parameters, norm: None)

"""Measures a PyTorch model, module by module, as a model that scenarios take. Needs PyTorch, which the package does not."""
from __future__ import annotations

import os
import statistics
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

import torch

from ._errors import wrong
from ._yaml import document

Model = Dict[str, Any]


@torch.enable_grad()
def profile(model: Union[torch.nn.Sequential, Iterable[torch.nn.Module]], example: torch.Tensor, *,
            loss: Optional[Callable[[torch.Tensor], torch.Tensor]] = None, repeats: int = 9, in_flight: int = 4,
            name: str = "", to: Union[None, str, os.PathLike] = None) -> Model:
    """The model's layers with their times on this machine, sizes and parameters, for a scenario's `model:`.

    `model`: a chain of modules, each of which takes what the one before returns; every one becomes a layer.
    `example`: a batch of the model's input; times and sizes are those of as many samples. `loss`: of the last output, a
    layer of its own. Times are medians of `repeats` runs or more behind two that warm up, with PyTorch's threads as they are
    set. The model runs as in a pipeline: the forwards of `in_flight` micro-batches, then their backwards; less needs less
    memory. Of a model on a CUDA device each run is timed until the device has ended it: the start of its first kernel counts.
    `to`: a file that `model: {file: ...}` reads.
    """
    chain = _chain(model)
    if not isinstance(example, torch.Tensor) or example.dim() == 0:
        raise wrong("example", f"is a {type(example).__name__}; give a batch of the model's input, a tensor")
    for argument, value in (("repeats", repeats), ("in_flight", in_flight)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise wrong(argument, f"is {str(value)[:40]!r}; write a whole number from 1 on")
    if not chain:
        raise wrong("model", "has no modules; give at least one")
    device = example.device
    if device.type not in ("cpu", "cuda"):
        raise wrong("example", f"lies on {device}; a CPU or a CUDA device is measured, move it there")
    for label, module in chain:
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.device != device:
                raise wrong("model", f"{label} lies on {tensor.device}, the example on {device}; move it there with .to()")
    if loss is not None:
        chain.append(("loss", _Loss(loss)))
    known = {_storage(p) for _, module in chain for p in (*module.parameters(), *module.buffers())}
    counted: Dict[int, torch.Tensor] = {}  # what is kept stays alive, so that no other storage takes its place
    layers: List[Dict[str, Any]] = []
    x = example.detach()
    for label, module in chain:
        layer, x = _layer(label, module, x, known, counted)
        layers.append(layer)
    counted.clear()
    gradients = [(p, p.grad) for _, module in chain for p in module.parameters()]
    for p, _ in gradients:
        p.grad = None  # what is there would be added to
    try:
        whole, of_inputs = (_spans(chain, example.detach(), repeats + 2, in_flight, weights) for weights in (True, False))
    finally:
        for p, gradient in gradients:
            p.grad = gradient
    for number, layer in enumerate(layers):
        backward = whole.median(whole.backward[number])
        inputs = min(backward, of_inputs.median(of_inputs.backward[number]))
        if layer["parameters"] == 0:
            inputs = backward
        layer |= {"forward": f"{whole.median(whole.forward[number])} ns", "backward_input": f"{inputs} ns",
                  "backward_weight": f"{backward - inputs} ns"}
    measured = {"name": name or "torch-model", "batch": len(example),
                "source": f"PyTorch {torch.__version__} on {_named(device)}, median of {repeats} runs",
                "layers": layers}
    if to is not None:
        with open(to, "w", encoding="utf-8") as file:
            file.write(document({"model": measured}))
    return measured


class _Loss(torch.nn.Module):

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _chain(model: Any) -> list:
    if isinstance(model, torch.nn.Sequential):
        return [(f"{name}-{type(module).__name__}" if name.isdigit() else name, module) for name, module in model.named_children()]
    if isinstance(model, torch.nn.Module) or not isinstance(model, Iterable):
        raise wrong("model", f"is a {type(model).__name__}, which does not say in what order its parts run; give a "
                    "torch.nn.Sequential, or a list of modules that each take what the one before returns")
    chain = list(model)
    for number, module in enumerate(chain):
        if not isinstance(module, torch.nn.Module):
            raise wrong(f"model[{number}]", f"is a {type(module).__name__}; give modules")
    return [(f"{number}-{type(module).__name__}", module) for number, module in enumerate(chain)]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _named(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"a CPU, {torch.get_num_threads()} threads"


def _settle(device: torch.device) -> None:
    """Waits for all work that was issued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _Spans:
    """Nanoseconds of every module, run by run, forward and backward."""

    def __init__(self, modules: int) -> None:
        self.forward: List[List[int]] = [[] for _ in range(modules)]
        self.backward: List[List[int]] = [[] for _ in range(modules)]

    @staticmethod
    def median(spans: List[int]) -> int:
        return round(statistics.median(spans[2:] or spans or [0]))  # the first two warm up


def _timed(work: Callable[[], Any], device: torch.device, spans: List[int]) -> Any:
    _settle(device)
    begin = time.perf_counter_ns()
    result = work()
    _settle(device)
    spans.append(time.perf_counter_ns() - begin)
    return result


def _spans(chain: list, example: torch.Tensor, runs: int, in_flight: int, weights: bool) -> _Spans:
    """Runs micro-batches as a stage of a pipeline does: the forwards of so many, then their backwards. What they keep stays
    alive meanwhile, so that memory is as new to the allocator as there. `weights`: with the gradients of the weights."""
    spans, device = _Spans(len(chain)), example.device
    for _ in range(0, runs, in_flight):
        kept = []
        for _ in range(in_flight):
            y, passed = example, []
            for number, (_, module) in enumerate(chain):
                x = y.detach().requires_grad_(number > 0 and y.requires_grad)
                y = _timed(lambda: module(x), device, spans.forward[number])
                passed.append((x, y))
            kept.append(passed)
        while kept:
            passed = kept.pop(0)
            gradient = torch.ones_like(passed[-1][1])
            while passed:
                x, y = passed.pop()
                parameters = [p for p in chain[len(passed)][1].parameters() if p.requires_grad] if weights else []
                wanted = [*parameters, *([x] if x.requires_grad else [])]
                if not y.requires_grad or not wanted:
                    break
                _timed(lambda: torch.autograd.backward(y, gradient, inputs=wanted), device, spans.backward[len(passed)])
                gradient = torch.zeros_like(x) if x.grad is None else x.grad
                del x, y
    return spans


def _layer(label: str, module: torch.nn.Module, given: torch.Tensor, known: set, counted: Dict[int, torch.Tensor]):
    first = not given.requires_grad  # the model's own input has no gradient
    x = given.detach().requires_grad_(not first)
    stash = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal stash
        if _storage(tensor) not in known and _storage(tensor) not in counted:  # kept by one layer, read by others
            stash += tensor.untyped_storage().nbytes()
            counted[_storage(tensor)] = tensor
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = module(x)
    except (RuntimeError, ValueError) as error:
        raise wrong(label, f"does not run on what the layer before returns ({error}); give the parts in their order, none of "
                    "which changes its input in place") from error
    if not isinstance(y, torch.Tensor):
        raise wrong(label, f"returns a {type(y).__name__}; only modules that return one tensor are measured")
    layer = {"name": label, "activation": f"{y.numel() * y.element_size()} B", "stash": f"{stash} B",
             "parameters": sum(p.numel() for p in module.parameters() if p.requires_grad)}
    return layer, y.detach().requires_grad_(y.requires_grad)

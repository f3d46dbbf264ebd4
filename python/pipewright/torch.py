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


def profile(model: Union[torch.nn.Sequential, Iterable[torch.nn.Module]], example: torch.Tensor, *,
            loss: Optional[Callable[[torch.Tensor], torch.Tensor]] = None, repeats: int = 9, name: str = "",
            to: Union[None, str, os.PathLike] = None) -> Model:
    """The model's layers with their times on this CPU, sizes and parameters, for a scenario's `model:`.

    `model`: a chain of modules, each of which takes what the one before returns; every one becomes a layer.
    `example`: a batch of the model's input; times and sizes are those of as many samples. `loss`: of the last output, a
    layer of its own. Times are medians of `repeats` runs behind two that warm up, with PyTorch's threads as they are set.
    `to`: a file that `model: {file: ...}` reads.
    """
    chain = _chain(model)
    if not isinstance(example, torch.Tensor) or example.dim() == 0:
        raise wrong("example", f"is a {type(example).__name__}; give a batch of the model's input, a tensor")
    if repeats < 1:
        raise wrong("repeats", f"is {repeats}; write 1 or more")
    for label, module in chain:
        for tensor in [example, *module.parameters()]:
            if tensor.device.type != "cpu":
                raise wrong("model", f"{label} lies on {tensor.device}; only a CPU is measured, move it with .cpu()")
    if loss is not None:
        chain.append(("loss", _Loss(loss)))
    known = {_storage(p) for _, module in chain for p in (*module.parameters(), *module.buffers())}
    counted: Dict[int, torch.Tensor] = {}  # what is kept stays alive, so that no other storage takes its place
    layers: List[Dict[str, Any]] = []
    x = example.detach()
    for label, module in chain:
        layer, x = _layer(label, module, x, known, counted, repeats)
        layers.append(layer)
    measured = {"name": name or "torch-model", "batch": len(example),
                "source": f"PyTorch {torch.__version__} on a CPU, {torch.get_num_threads()} threads, median of {repeats} runs",
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


def _times(work: Callable[[], Any], repeats: int) -> int:
    """The median, in nanoseconds."""
    spans = []
    for number in range(repeats + 2):
        begin = time.perf_counter_ns()
        work()
        if number >= 2:
            spans.append(time.perf_counter_ns() - begin)
    return round(statistics.median(spans))


def _layer(label: str, module: torch.nn.Module, given: torch.Tensor, known: set, counted: Dict[int, torch.Tensor], repeats: int):
    first = not given.requires_grad  # the model's own input has no gradient
    x = given.detach().requires_grad_(not first)
    parameters = [p for p in module.parameters() if p.requires_grad]
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
    except RuntimeError as error:
        raise wrong(label, f"does not run on what the layer before returns ({error}); give the parts in their order, none of "
                    "which changes its input in place") from error
    if not isinstance(y, torch.Tensor):
        raise wrong(label, f"returns a {type(y).__name__}; only modules that return one tensor are measured")
    layer = {"name": label, "forward": f"{_times(lambda: module(x), repeats)} ns",
             "activation": f"{y.numel() * y.element_size()} B", "stash": f"{stash} B",
             "parameters": sum(p.numel() for p in parameters)}
    inputs, weights = 0, 0
    if y.requires_grad:
        gradient = torch.ones_like(y)
        whole = _times(lambda: torch.autograd.backward(y, gradient, retain_graph=True, inputs=[*parameters, *([] if first else [x])]),
                       repeats)
        inputs = 0 if first else whole if not parameters else min(
            whole, _times(lambda: torch.autograd.grad(y, x, gradient, retain_graph=True), repeats))
        weights = whole - inputs
        for p in parameters:
            p.grad = None
    layer |= {"backward_input": f"{inputs} ns", "backward_weight": f"{weights} ns"}
    return layer, y.detach().requires_grad_(y.requires_grad)

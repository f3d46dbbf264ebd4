"""pipewright from Python: predicts how the training of a neural network behaves on many accelerators, and plans it.

    import pipewright as pw
    plans = pw.plan("mine.yaml")
    print(plans)                                # the ranking, as the command prints it
    plans.simulate().save("timeline.svg")

docs/reference/python.md of the sources explains it by task.
"""
from ._core import version as __version__
from ._errors import DoesNotFit, Error, Fault, InputError, InternalError, NoPlanYet
from ._questions import (Order, Problem, Scenario, capacity, compare, draw, measured_runs, plan, published_tables, reproduce, simulate,
                         sweep)
from ._results import Capacity, Comparison, Drawing, MemoryCurve, Plans, Reproduction, Result, Simulation, Sweep, Timeline

__all__ = [
    "Capacity", "Comparison", "DoesNotFit", "Drawing", "Error", "Fault", "InputError", "InternalError", "MemoryCurve", "NoPlanYet", "Order",
    "Plans", "Problem", "Reproduction", "Result", "Scenario", "Simulation", "Sweep", "Timeline", "__version__", "capacity", "compare",
    "draw", "measured_runs", "plan", "published_tables", "reproduce", "simulate", "sweep"
]


def __getattr__(name):
    if name == "torch":  # pw.torch, for those who have PyTorch
        import importlib
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

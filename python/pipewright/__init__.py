"""pipewright from Python: predicts how the training of a neural network behaves on many accelerators, and plans it.

    import pipewright as pw
    plans = pw.plan("mine.yaml")
    print(plans)                                # the ranking, as the command prints it
    plans.simulate().save("timeline.svg")

docs/reference/python.md of the sources explains it by task.
"""
from ._core import version as __version__
from ._errors import DoesNotFit, Error, Fault, InputError, InternalError, NoPlanYet
from ._questions import (Order, Problem, Scenario, capacity, compare, draw, launch, measured_runs, plan, published_tables, reproduce,
                         simulate, sweep, validate)
from ._results import (Capacity, Comparison, Drawing, Launch, MemoryCurve, Plans, Reproduction, Result, Simulation, Sweep, Timeline,
                       Validation)

__all__ = [
    "Capacity", "Comparison", "DoesNotFit", "Drawing", "Error", "Fault", "InputError", "InternalError", "Launch", "MemoryCurve",
    "NoPlanYet", "Order", "Plans", "Problem", "Reproduction", "Result", "Scenario", "Simulation", "Sweep", "Timeline", "Validation",
    "__version__", "capacity", "compare", "draw", "launch", "measured_runs", "plan", "published_tables", "reproduce", "simulate",
    "sweep", "validate"
]


def __getattr__(name):
    if name == "torch":  # pw.torch, for those who have PyTorch
        import importlib
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

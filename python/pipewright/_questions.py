"""Questions: scenarios and what is asked about them. docs/reference/python.md explains each."""
from __future__ import annotations

import os
import pathlib
import shlex
import signal
import threading
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _core, _results, _yaml
from ._errors import wrong

Changes = Union[None, Mapping[str, Any], Iterable[str]]
_FOLDER = pathlib.Path(__file__).resolve().parent


def _shipped() -> List[str]:
    """configs/ of the package; in a build folder that of the source tree."""
    return [str(_FOLDER / "configs"), *([_core.source_configs] if _core.source_configs else [])]


def _folders() -> List[str]:
    return _core.config_folders(_shipped())


def _takes_interrupts() -> bool:
    """Whether Python handles Ctrl-C by itself, and this is the thread that gets it."""
    return (threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler)


def _path(value: Any, argument: str) -> str:
    try:
        path = os.fspath(value)
    except TypeError:
        raise wrong(argument, f"is a {type(value).__name__}; write the path of a file" + (", a Scenario or a dict" if argument in ("scenario", "question", "a", "b") else "")) from None
    if isinstance(path, bytes):
        raise wrong(argument, "is bytes; write the path as text")
    if "\n" in path:
        raise wrong(argument, "has several lines, so it is not a path; for the text of a scenario write Scenario.from_yaml(text)")
    return _yaml._checked(path, argument)


def _number(value: Any, argument: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong(argument, f"is {str(value)[:40]!r}; write a whole number from {least} to {most}")
    number = value.__index__()
    if not least <= number <= most:
        raise wrong(argument, f"is {str(number)[:40]}; write a whole number from {least} to {most}")
    return number


def _amount(value: Any, argument: str, least: float, most: float, unit: str, above: bool = False) -> float:
    try:
        number = float(value) if not isinstance(value, (str, bytes, bool)) else float("nan")
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not (least < number <= most if above else least <= number <= most):
        raise wrong(argument, f"is {str(value)[:40]!r}; write {unit}, {'above' if above else 'from'} {least:g} to {most:g}")
    return number


def _word(value: Any, argument: str, known: Sequence[str]) -> str:
    if value not in known:
        raise wrong(argument, f"is {str(value)[:40]!r}; write one of {', '.join(known)}")
    return value


class Order:
    """An order of ops for every stage: a schedule of your own.

    `stages`: a list of labels per stage. A label is <chunk><op><micro-batch> as PyTorch writes it: 0F3 is the forward of
    micro-batch 3 through chunk 0; B is a whole backward, I and W are its halves (input, weights).

        Order([["0F0", "0B0"], ["1F0", "1B0"]])
    """

    NAME = "order.schedule.csv"  # by which a scenario names it

    def __init__(self, stages: Sequence[Sequence[str]]) -> None:
        if isinstance(stages, (str, bytes)) or not hasattr(stages, "__iter__"):
            raise wrong("order", "is not a list; write a list of labels per stage, e.g. [['0F0', '0B0']]")
        rows = []
        for k, stage in enumerate(stages):
            if isinstance(stage, (str, bytes)) or not hasattr(stage, "__iter__"):
                raise wrong("order", f"stage {k} is not a list; write a list of labels, e.g. ['0F0', '0B0']")
            row = []
            for label in stage:
                if not isinstance(label, str) or not label.isascii() or not label.isalnum():
                    raise wrong("order", f"stage {k} holds {str(label)[:20]!r}; a label is <chunk><op><micro-batch>: 0F3")
                row.append(label)
            rows.append(row)
        if not any(rows):
            raise wrong("order", "holds no op; write a list of labels per stage, e.g. [['0F0', '0B0']]")
        self._csv = "".join(",".join(row) + "\n" for row in rows)

    @classmethod
    def of_schedule(cls, name: str, *, stages: int, micro_batches: int, virtual_stages: int = 1) -> "Order":
        """The order of a schedule that pipewright knows, to start from."""
        return cls.from_csv(_core.order_csv(str(name), _number(stages, "stages", 1, 65535),
                                            _number(micro_batches, "micro_batches", 1, 2**24),
                                            _number(virtual_stages, "virtual_stages", 1, 65535)))

    @classmethod
    def from_csv(cls, text: str) -> "Order":
        """From the text of a schedule file (docs/reference/schedule-csv.md)."""
        if not isinstance(text, str):
            raise wrong("order", f"is a {type(text).__name__}; write the text of a schedule file")
        order = cls.__new__(cls)
        order._csv = _yaml._checked(text, "order")
        return order

    @property
    def csv(self) -> str:
        """As PyTorch's schedule file."""
        return self._csv

    @property
    def stages(self) -> List[List[str]]:
        return [[cell for cell in row.split(",") if cell] for row in self._csv.splitlines()]

    def __repr__(self) -> str:
        return f"<Order of {len(self._csv.splitlines())} stages>"


class Scenario:
    """What is trained on what, and how: the keys of docs/reference/scenario.md.

        Scenario(model="llama3-8b", cluster="dgx-h100x8", training={"global_batch_size": 256, ...}, plan="auto")
        Scenario.from_file("scenarios/quickstart.yaml")
        Scenario.from_yaml(text)
        Scenario.from_dict({"model": ..., "cluster": ..., "training": ..., "plan": ...})

    Paths within a dict or a text are relative to the working directory. A scenario never changes; `with_` makes another.
    """

    def __init__(self, **sections: Any) -> None:
        other = Scenario.from_dict(sections)
        self._path, self._texts, self._set = other._path, other._texts, other._set

    @classmethod
    def _made(cls, path: str, texts: Dict[str, str], changed: List[str]) -> "Scenario":
        scenario = cls.__new__(cls)
        scenario._path, scenario._texts, scenario._set = path, texts, changed
        return scenario

    @classmethod
    def from_file(cls, path: Union[str, "os.PathLike[str]"]) -> "Scenario":
        """The file is read by every call that asks about it."""
        return cls._made(_path(path, "path"), {}, [])

    @classmethod
    def from_yaml(cls, text: str, *, name: str = "scenario") -> "Scenario":
        """`name`: what messages call it, and the scenario's name where the text has none."""
        if not isinstance(text, str):
            raise wrong("text", f"is a {type(text).__name__}; write the text of a scenario")
        name = _path(name, "name")
        return cls._made(name, {name: _yaml._checked(text, "text")}, [])

    @classmethod
    def from_dict(cls, sections: Mapping[str, Any], *, name: str = "scenario") -> "Scenario":
        if not isinstance(sections, Mapping):
            raise wrong("sections", f"is a {type(sections).__name__}; write a dict: {{'model': ..., 'cluster': ...}}")
        return cls.from_yaml(_yaml.document(sections), name=name)

    def with_(self, set: Changes = None, schedule: Union[None, str, Order] = None) -> "Scenario":
        """The same with values changed: {"plan.stages": 8}; None removes a key."""
        changed, texts = self._set + _yaml.changes(set), self._texts
        if isinstance(schedule, Order):
            texts = {**texts, Order.NAME: schedule.csv}
            changed = changed + [f"plan.schedule={{file: {Order.NAME}}}"]
        elif schedule is not None:
            changed = changed + _yaml.changes({"plan.schedule": schedule})
        return Scenario._made(self._path, texts, changed)

    @property
    def text(self) -> str:
        """The scenario as YAML, as given."""
        if self._path in self._texts:
            return self._texts[self._path]
        return pathlib.Path(self._path).read_text(encoding="utf-8")

    def resolved(self) -> str:
        """The scenario as YAML with every default, each line with its origin. Throws InputError where it is wrong."""
        return self._asked().resolved()

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes `text`; changes made by `with_` are not in it."""
        if self._set:
            raise wrong("path", "the scenario has changes, which its text lacks; save resolved() instead")
        pathlib.Path(path).write_text(self.text, encoding="utf-8")

    def _asked(self) -> "_core.Asked":
        return _core.Asked(self._path, self._texts, self._set, _folders())

    def _named(self) -> str:
        return " ".join([self._path, *(f"--set {each}" for each in self._set)])

    def __repr__(self) -> str:
        return f"<Scenario {self._named()}>"


ScenarioLike = Union[Scenario, Mapping[str, Any], str, "os.PathLike[str]"]


def _scenario(given: Any, argument: str = "scenario") -> Scenario:
    if isinstance(given, Scenario):
        return given
    if isinstance(given, Mapping):
        return Scenario.from_dict(given)
    return Scenario._made(_path(given, argument), {}, [])


def simulate(scenario: ScenarioLike, *, set: Changes = None, schedule: Union[None, str, Order] = None,
             engine: str = "auto", ignore_memory: bool = False) -> "_results.Simulation":
    """Prices one plan, as `pipewright simulate`. Of a plan that does not fit, `fits` is False and figures raise
    DoesNotFit; with `ignore_memory` they are those of the plan all the same.

    engine: "auto", "static" (fixed orders) or "event" (queue with shared links).
    """
    asked = _scenario(scenario).with_(set, schedule)
    engine = _word(engine, "engine", ("auto", "static", "event"))
    core = _core.simulate(asked._asked(), engine, bool(ignore_memory))
    return _results.Simulation(core, f"pipewright simulate {asked._named()}")


def draw(results: Any, *, width: str = "", font: str = "", font_size: str = "", palette: str = "screen",
         memory: Optional[str] = None, title: bool = True, legend: bool = True) -> "_results.Drawing":
    """Timelines as a picture for a page, as `pipewright draw`.

    results: of `simulate`: one, or several on one scale in a dict by their headings. width and font_size: "84mm", "7pt". font:
    "Helvetica, sans-serif". palette: "screen", "colour-blind" or "grey". memory: "stages", "fullest" or "none".
    """
    panels = results if isinstance(results, Mapping) else {"": results}
    cores = []
    for name, result in panels.items():
        if not isinstance(result, _results.Simulation):
            raise wrong("results", f"holds {str(result)[:40]!r}; write what simulate returned, or a dict of them by heading")
        result.makespan  # DoesNotFit, where there is no timeline
        cores.append(result._core)
    if not cores:
        raise wrong("results", "is empty; write what simulate returned")
    kinds = ("stages", "fullest", "none")
    below = _word(kinds[len(cores) > 1] if memory is None else memory, "memory", kinds)
    return _results.Drawing(
        _core.draw(cores, [str(name) for name in panels], str(width), str(font), str(font_size),
                   _core.palettes.index(_word(palette, "palette", _core.palettes)), kinds.index(below), bool(title), bool(legend)))


def plan(scenario: ScenarioLike, *, set: Changes = None, objective: str = "throughput", top: int = 5, gap: float = 0.01,
         time_limit: float = 10.0, framework: Optional[str] = None, explain: bool = False,
         pareto: Sequence[str] = ()) -> "_results.Plans":
    """Finds the best plan for what a scenario leaves open ("auto"), as `pipewright plan`.

    objective: "throughput", "step_time", "cost" or "memory". gap: share of the bound that is near enough. time_limit:
    seconds. framework: only plans that `launch` can write for it. explain: bandwidths at which the best plan changes.
    pareto: "memory", "cost" or both. Ctrl-C ends the search with the best plan so far (`interrupted`); before there is
    one it raises KeyboardInterrupt.
    """
    asked = _scenario(scenario).with_(set)
    objectives = ("throughput", "step_time", "cost", "memory")
    number = objectives.index(_word(objective, "objective", objectives))
    axes = [pareto] if isinstance(pareto, str) else [str(axis) for axis in pareto]
    core = _core.plan(asked._asked(), number, _number(top, "top", 1, 1000), _amount(gap, "gap", 0, 10, "a share"),
                      _amount(time_limit, "time_limit", 0, 1e9, "seconds", above=True), framework or "", bool(explain), axes,
                      _takes_interrupts())
    return _results.Plans(core, f"pipewright plan {asked._named()}")


def launch(scenario: ScenarioLike, framework: str, *, set: Changes = None, schedule: Union[None, str, Order] = None,
           sbatch: bool = False) -> "_results.Launch":
    """The file that starts a plan, as `pipewright launch`.

    scenario: without "auto", e.g. `plans.scenario(0)`. framework: "megatron", "torchtitan", "torch", "deepspeed" or
    "slurm". What it cannot express is in `differences`, and is replaced by the nearest that it can.
    """
    asked = _scenario(scenario).with_(set, schedule)
    target = _word(framework, "framework", _core.launch_targets)
    words = [asked._path, *(word for change in asked._set for word in ("--set", change)), "--for", target]
    command = "pipewright launch " + shlex.join([*words, *(["--sbatch"] if sbatch else [])])
    notes = []
    if Order.NAME in asked._texts:
        notes.append(f"the order is in memory: save its csv as {Order.NAME} for the commands that name it")
    return _results.Launch(_core.launch(asked._asked(), target, bool(sbatch), command), notes)


def validate(scenario: ScenarioLike, *, log: Union[None, str, "os.PathLike[str]"] = None,
             traces: Sequence[Union[str, "os.PathLike[str]"]] = (), set: Changes = None,
             schedule: Union[None, str, Order] = None, warmup: int = 3, tolerance: float = 0.1) -> "_results.Validation":
    """A run elsewhere next to the prediction, as `pipewright validate --log --trace`.

    log: of Megatron-LM or torchtitan. traces: of PyTorch's profiler, a file per rank. warmup: steps of the log that do
    not count. tolerance: share of the step time within which the prediction counts as right (`within`).
    """
    asked = _scenario(scenario).with_(set, schedule)
    listed = [traces] if isinstance(traces, (str, os.PathLike)) else [] if traces is None else traces
    if not hasattr(listed, "__iter__"):
        raise wrong("traces", f"is a {type(listed).__name__}; write a list of paths, one per rank")
    paths = [_path(trace, "traces") for trace in listed]
    if log is None and not paths:
        raise wrong("traces", "is missing, and so is log; name files that a run wrote")
    for argument, value in [("log", log), *(("traces", path) for path in paths)]:
        if value is not None and not os.fspath(value):
            raise wrong(argument, "is empty; write the path of a file")
    core = _core.validate(asked._asked(), "" if log is None else _path(log, "log"), paths,
                          _number(warmup, "warmup", 0, 10**9), _amount(tolerance, "tolerance", 0, 10, "a share"))
    return _results.Validation(core, f"pipewright validate {asked._named()}")


def sweep(question: ScenarioLike, *, set: Changes = None, grid: Optional[Mapping[str, Sequence[Any]]] = None,
          variants: Optional[Mapping[str, Mapping[str, Any]]] = None, where: Sequence[str] = (), replan: bool = False,
          metrics: Sequence[str] = (), jobs: Optional[int] = None, time_limit: float = 10.0) -> "_results.Sweep":
    """A row of figures per point, as `pipewright sweep`.

    question: a sweep file (docs/reference/sweep.md), or a scenario, with `grid` {"plan.stages": [2, 4, 8]} and `variants`
    {"fast": {"cluster.network.bandwidth": "400 Gb/s"}}. replan: the planner chooses the plan of every point again, in at
    most `time_limit` seconds. jobs: threads; default: one per core. The rows do not depend on it. Ctrl-C ends it with
    the rows that are there (`interrupted`).
    """
    base = _scenario(question, "question")
    if grid is None and variants is None:
        if where or replan or metrics:
            raise wrong("grid", "is missing: where, replan and metrics of a sweep file stand in the file")
        asked = base.with_(set)
    else:
        sections: Dict[str, Any] = {"base": base._path}
        for key, value, needed in (("grid", grid, Mapping), ("variants", variants, Mapping)):
            if value is not None and not isinstance(value, needed):
                raise wrong(key, f"is a {type(value).__name__}; write a dict")
            if value is not None:
                sections[key] = value
        for key, listed in (("where", where), ("metrics", metrics)):
            if listed:
                sections[key] = [listed] if isinstance(listed, str) else list(listed)
        if replan:
            sections["replan"] = True
        asked = Scenario._made("sweep", {**base._texts, "sweep": _yaml.document({"sweep": sections})},
                               base._set + _yaml.changes(set))
    threads = 0 if jobs is None else _number(jobs, "jobs", 1, 1024)
    core = _core.sweep(asked._asked(), threads, _amount(time_limit, "time_limit", 0, 1e9, "seconds", above=True),
                       _takes_interrupts())
    return _results.Sweep(core, f"pipewright sweep {asked._named()}")


def capacity(scenario: ScenarioLike, over: str, *, at_most: Optional[int] = None,
             set: Changes = None) -> "_results.Capacity":
    """The largest value of a whole number with which the scenario fits its devices, as `pipewright capacity`.

    over: its key, e.g. "model.layers". at_most: no larger value is tried. Ctrl-C: the rows that are there.
    """
    asked = _scenario(scenario).with_(set)
    if not isinstance(over, str):
        raise wrong("over", f"is a {type(over).__name__}; name a whole number of the scenario, e.g. 'model.layers'")
    most = None if at_most is None else _number(at_most, "at_most", 1, 2**62)
    core = _core.capacity(asked._asked(), _yaml._checked(over, "over"), most, _takes_interrupts())
    return _results.Capacity(core, f"pipewright capacity {asked._named()} --over {over}")


def compare(a: ScenarioLike, b: ScenarioLike, *, set: Changes = None, set_a: Changes = None,
            set_b: Changes = None) -> "_results.Comparison":
    """Two scenarios, or results that `save` wrote (.json): what differs, as `pipewright compare`."""
    sides = _scenario(a, "a").with_(set), _scenario(b, "b").with_(set)
    core = _core.compare(sides[0]._asked(), sides[1]._asked(), _yaml.changes(set_a, "set_a"), _yaml.changes(set_b, "set_b"))
    return _results.Comparison(core, f"pipewright compare {sides[0]._path} {sides[1]._path}")


def reproduce(*names: Union[str, "os.PathLike[str]", Scenario], all: bool = False, set: Changes = None,
              data: Union[None, str, "os.PathLike[str]"] = None) -> "_results.Reproduction":
    """Published tables beside predictions, as `pipewright reproduce`.

    names: those of `published_tables()` or `measured_runs()`, or scenarios with an expect: block. all: every table that
    ships. data: folder of measured runs, which do not ship.
    """
    texts: Dict[str, str] = {}
    listed = []
    for name in names:
        if isinstance(name, Scenario):
            if name._set:
                raise wrong("names", "a scenario with changes: write them as set=")
            texts.update(name._texts)
            listed.append(name._path)
        else:
            listed.append(_path(name, "names"))
    if not listed and not all:
        raise wrong("names", f"is missing; write all=True, or some of {', '.join(published_tables())}")
    if listed and all:
        raise wrong("all", "is for every table, and some are named; leave one of them out")
    asked = Scenario._made("", texts, _yaml.changes(set))
    core = _core.reproduce(asked._asked(), listed, bool(all), "" if data is None else _path(data, "data"),
                           _takes_interrupts())
    return _results.Reproduction(core, "pipewright reproduce " + ("--all" if all else " ".join(listed)))


def published_tables() -> Dict[str, str]:
    """Tables that ship with pipewright, with what they are."""
    return dict(_core.published_tables())


def measured_runs() -> Dict[str, str]:
    """Sets of measured runs, which `reproduce` reads in a folder of data."""
    return dict(_core.measured_runs())


class Problem:
    """An order of ops, compiled once, and timed with any costs.

        problem = Problem(Order.of_schedule("1f1b", stages=4, micro_batches=8))
        problem.columns                      # ('F0', ..., 'F3', 'BW0', ..., 'BW3', 'hop0', 'hop1', 'hop2')
        problem.makespans([[3, 3, 3, 3, 6, 6, 6, 6, 0, 0, 0]])      # array([99])

    Costs are nanoseconds: of an op of a chunk (F: forward, B and W: gradients of input and weights, BW: both), and of a
    hop, the way of a tensor between chunks e and e + 1. Updates and all-reduces take no time.
    """

    def __init__(self, order: Union[Order, Sequence[Sequence[str]]]) -> None:
        self.order = order if isinstance(order, Order) else Order(order)
        self._core = _core.Problem(self.order.csv)

    @property
    def columns(self) -> Tuple[str, ...]:
        """What each column of the costs prices."""
        return tuple(self._core.columns)

    @property
    def stages(self) -> int:
        return self._core.stages

    @property
    def chunks(self) -> int:
        return self._core.chunks

    @property
    def micro_batches(self) -> int:
        return self._core.micro_batches

    def makespans(self, costs: Any) -> Any:
        """The end of the last op in nanoseconds (numpy, int64), for every row of costs (rows x columns, ns)."""
        return self._core.makespans(self._matrix(costs))

    def timeline(self, costs: Any) -> "_results.Timeline":
        """The times of all ops for one row of costs."""
        return _results.Timeline(self._core.timeline(self._matrix([costs])))

    def _matrix(self, costs: Any) -> Any:
        np = _results.numpy_or_error("costs")
        try:
            matrix = np.asarray(costs)
        except (ValueError, OverflowError, TypeError) as error:
            raise wrong("costs", f"is not a matrix ({error}); write a row of {len(self.columns)} numbers per run") from None
        if matrix.ndim != 2:
            raise wrong("costs", f"has {matrix.ndim} dimensions; write a matrix, a row of {len(self.columns)} numbers per run")
        if matrix.dtype.kind == "f":
            if not np.isfinite(matrix).all() or (abs(matrix) > 2.0**62).any():
                raise wrong("costs", "holds a number that is not a time, or one above 2^62 ns; write nanoseconds")
            matrix = np.rint(matrix)
        elif matrix.dtype.kind == "u":
            if (matrix > 2**62).any():
                raise wrong("costs", "holds a number above 2^62 ns; write nanoseconds")
        elif matrix.dtype.kind != "i":
            raise wrong("costs", f"holds {matrix.dtype}; write whole nanoseconds")
        return np.ascontiguousarray(matrix, dtype=np.int64)

    def __repr__(self) -> str:
        return f"<Problem of {self.stages} stages, {self.chunks} chunks and {self.micro_batches} micro-batches>"

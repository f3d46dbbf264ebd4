"""Answers. Each has `.json`, the document that the command prints with --json, byte for byte, and `.data`, the same as a
dict. Documents are described in docs/reference; times there are seconds, sizes bytes, shares of 1."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _core
from ._errors import DoesNotFit, NoPlanYet, wrong

_WIDTH = 100


def numpy_or_error(what: str) -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError(f"{what} needs numpy: python3 -m pip install numpy") from error
    return numpy


def _pandas_or_error() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: python3 -m pip install pandas") from error
    return pandas


class Result:
    """What all answers have."""

    _formats: Tuple[str, ...] = ("json",)

    def __init__(self, core: Any, command: str) -> None:
        self._core, self._command = core, command
        self._json: Optional[str] = None
        self._data: Optional[Dict[str, Any]] = None

    @property
    def json(self) -> str:
        """The document, as the command prints it with --json."""
        if self._json is None:
            self._json = self._core.json()
        return self._json

    @property
    def data(self) -> Dict[str, Any]:
        """The document as a dict."""
        if self._data is None:
            self._data = json.loads(self.json)
        return self._data

    def text(self, width: int = _WIDTH) -> str:
        """The report, as the command prints it."""
        return self._core.text(_columns(width))

    def render(self, format: str) -> Union[str, bytes]:
        """One of the formats of the command's -o: "svg", "html", "csv", ... Bytes where it is compressed."""
        if format not in self._formats:
            raise wrong("format", f"is {str(format)[:40]!r}; known here: {', '.join(self._formats)}")
        return self.json if format == "json" else self._rendered(format)

    def _rendered(self, format: str) -> Union[str, bytes]:
        raise NotImplementedError

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a file, in the format of its extension."""
        name = os.fspath(path)
        for format in sorted(self._formats, key=len, reverse=True):
            if name.endswith("." + format):
                content = self.render(format)
                pathlib.Path(name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
                return
        raise wrong("path", f"{str(name)[:80]!r} has no known extension; known here: .{', .'.join(self._formats)}")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._command}>"


def _columns(width: int) -> int:
    if isinstance(width, bool) or not isinstance(width, int) or not 40 <= width <= 1000:
        raise wrong("width", f"is {str(width)[:40]!r}; write a whole number from 40 to 1000")
    return width


class Timeline:
    """When every op ran, as numpy arrays of one length; they look at memory of the answer, which they keep alive, and
    cannot be written to. In order of workers, then of streams, then of time.

    Of copies of the pipeline that run alike, only those that were simulated are here: `Simulation.timeline_of_all`.
    """

    kinds: Tuple[str, ...] = _core.kinds
    """Names of the kinds of ops: F forward, B and W gradients of input and weights, BW both, R recomputation."""
    streams: Tuple[str, ...] = ("compute", *_core.streams)

    def __init__(self, core: Any, transfers: Any = None) -> None:
        numpy_or_error("a timeline")
        self._core, self._transfers = core, transfers

    worker = property(lambda self: self._core.worker, doc="number of the worker (copy * workers of a copy + position)")
    stage = property(lambda self: self._core.stage, doc="stage that the worker is of")
    chunk = property(lambda self: self._core.chunk, doc="virtual stage that the op is of")
    micro_batch = property(lambda self: self._core.micro_batch, doc="of an all-reduce or an update: its round")
    kind = property(lambda self: self._core.kind, doc="number in `kinds`")
    stream = property(lambda self: self._core.stream, doc="number in `streams`")
    start_ns = property(lambda self: self._core.start_ns, doc="nanoseconds since the run began")
    end_ns = property(lambda self: self._core.end_ns, doc="nanoseconds since the run began")

    _fields = ("worker", "stage", "chunk", "micro_batch", "kind", "stream", "start_ns", "end_ns")

    @property
    def transfers(self) -> Any:
        """Messages between workers as arrays: from_worker, to_worker, micro_batch, direction (0 forward, 1 backward),
        bytes, posted_ns, start_ns, sent_ns, arrived_ns. None for a timeline without them."""
        return self._transfers() if callable(self._transfers) else None

    def __len__(self) -> int:
        return len(self.start_ns)

    def to_pandas(self) -> Any:
        """A row per op, kinds and streams by name."""
        frame = _pandas_or_error().DataFrame({name: getattr(self, name) for name in self._fields})
        for name, words in (("kind", self.kinds), ("stream", self.streams)):
            frame[name] = frame[name].map(dict(enumerate(words)))
        return frame

    def plot(self, axes: Any = None) -> Any:
        """Draws bars per worker with matplotlib, on `axes` or on a new figure; returns the axes."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot needs matplotlib: python3 -m pip install matplotlib; without it: "
                              "save('timeline.svg')") from error
        if axes is None:
            _, axes = pyplot.subplots()
        compute = self.stream == 0
        for number, name in enumerate(self.kinds):
            chosen = compute & (self.kind == number)
            if chosen.any():
                start, end = self.start_ns[chosen], self.end_ns[chosen]
                axes.barh(self.worker[chosen], (end - start) * 1e-6, left=start * 1e-6, height=0.9, label=name)
        axes.invert_yaxis()
        axes.set_xlabel("ms")
        axes.set_ylabel("worker")
        axes.legend()
        return axes


class MemoryCurve:
    """What one worker holds over time. `at_ns[i]`: from then on, until `at_ns[i + 1]`, it holds `bytes[i]`, a row with a
    column per category of `categories`. `total` is their sum but for rounding, what the allocator adds."""

    categories = ("weights", "gradients", "optimizer", "stash", "logits", "recompute", "buffers", "workspace", "reserve",
                  "rounding")

    def __init__(self, core: Any, worker: int) -> None:
        self._core, self.worker = core, worker

    @property
    def at_ns(self) -> Any:
        return self._core.at_ns(self.worker)

    @property
    def bytes(self) -> Any:
        return self._core.bytes(self.worker)

    @property
    def total(self) -> Any:
        """Bytes, per instant of `at_ns`."""
        return self.bytes[:, :-1].sum(axis=1)

    def to_pandas(self) -> Any:
        frame = _pandas_or_error().DataFrame(self.bytes, columns=list(self.categories))
        frame.insert(0, "at_ns", self.at_ns)
        return frame


class Simulation(Result):
    """The answer of `simulate`: docs/reference/result-json.md."""

    _formats = ("trace.json.gz", "trace.json", "json", "comms.schedule.csv", "schedule.csv", "timeline.csv", "messages.csv", "memory.csv", "csv",
                "dot", "html", "svg", "md")

    @property
    def fits(self) -> bool:
        """Whether the plan fits its devices."""
        return bool(self.data["fits"])

    def _figure(self, *keys: str) -> Any:
        if isinstance(self._core, _core.Infeasible):
            raise DoesNotFit(self._core.text().rstrip())
        value: Any = self.data
        for key in keys:
            value = value[key]
        return value

    def text(self, width: int = _WIDTH) -> str:
        width = _columns(width)
        return self._core.text() if isinstance(self._core, _core.Infeasible) else self._core.text(width)

    step_time = property(lambda self: self._figure("step_time_s"), doc="seconds of one optimizer step")
    makespan = property(lambda self: self._figure("makespan_s"), doc="seconds of the whole simulated run")
    throughput = property(lambda self: self._figure("samples_per_s"), doc="samples per second")
    tokens_per_second = property(lambda self: self._figure("tokens_per_s"), doc="tokens per second; None: not known")
    bubble = property(lambda self: self._figure("bubble_fraction"), doc="share of 1: 1 - busy / (workers x makespan)")
    bubble_of_span = property(lambda self: self._figure("bubble_fraction_span"), doc="share of 1: 1 - work / longest span of a worker")
    mfu = property(lambda self: self._figure("mfu"), doc="model FLOPs utilization, a share of 1; None: not known")
    interval_90 = property(lambda self: self._figure("interval_90"), doc="90 % interval of the step, a dict; None: no band is known")
    limiting_factor = property(lambda self: self._figure("limiting_factor"), doc="what limits the step, a sentence")
    plan = property(lambda self: self._figure("plan"), doc="the plan, a dict")
    stages = property(lambda self: self._figure("stages"), doc="figures of every stage, a list of dicts")
    workers = property(lambda self: self._figure("workers"), doc="figures of every worker, a list of dicts")

    @property
    def peak_memory(self) -> int:
        """Bytes at the peak of the fullest stage, reserve included."""
        return max(stage["memory_bytes"]["peak"] for stage in self.stages)

    @property
    def timeline(self) -> Timeline:
        """When every op ran, of the copies of the pipeline that were simulated."""
        self._figure()
        return Timeline(self._core.ops(False), self._core.transfers)

    @property
    def timeline_of_all(self) -> Timeline:
        """The same of every copy of the pipeline, alike or not."""
        self._figure()
        return Timeline(self._core.ops(True))

    @property
    def memory(self) -> List[MemoryCurve]:
        """Memory over time of every worker that was simulated."""
        self._figure()
        numpy_or_error("memory over time")
        core = self._core.memory()
        return [MemoryCurve(core, worker) for worker in range(len(core))]

    def _rendered(self, format: str) -> Union[str, bytes]:
        self._figure()
        content = self._core.write(format, self._command)
        return content if format.endswith(".gz") else content.decode("utf-8")

    def to_pandas(self) -> Any:
        """A row per worker, as -o FILE.csv has it."""
        import io

        return _pandas_or_error().read_csv(io.StringIO(str(self.render("csv"))))

    def plot(self, axes: Any = None) -> Any:
        """`timeline.plot`."""
        return self.timeline.plot(axes)

    def _repr_svg_(self) -> Optional[str]:
        return None if isinstance(self._core, _core.Infeasible) else str(self.render("svg"))


class Drawing:
    """The answer of `draw`: a picture in SVG, which notebooks show."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a .svg file. PDF: `rsvg-convert --format=pdf x.svg`, or the command `pipewright draw -o x.pdf`."""
        if not os.fspath(path).endswith(".svg"):
            raise wrong("path", f"{str(path)[:80]!r} is not a .svg")
        pathlib.Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


class Launch:
    """The answer of `launch`."""

    def __init__(self, core: Any, notes: List[str]) -> None:
        self._core, self._notes = core, notes

    @property
    def program(self) -> str:
        """The file: a shell script, or a Python program."""
        return self._core.program

    @property
    def fits(self) -> bool:
        """Whether what is written fits the devices."""
        return bool(self._core.fits)

    @property
    def differences(self) -> List[str]:
        """What the framework cannot express, and what is written instead."""
        return list(self._core.differences)

    @property
    def notes(self) -> List[str]:
        """The differences, what they cost, and warnings: what the command prints beside the file."""
        return [*self._core.notes, *self._notes]

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        pathlib.Path(path).write_text(self.program, encoding="utf-8")

    def __str__(self) -> str:
        return self.program

    def __repr__(self) -> str:
        return f"<Launch: {len(self.program.splitlines())} lines, {len(self.differences)} differences>"


class Validation(Result):
    """The answer of `validate`: docs/reference/importing.md."""

    _formats = ("json", "html")

    @property
    def within(self) -> bool:
        """Whether the step time is within the tolerance."""
        return bool(self._core.within)

    def _rendered(self, format: str) -> str:
        return self._core.html(self._command)

    def to_pandas(self) -> Any:
        """A row per action of the traces, with predicted and measured seconds; without traces, a row per step figure."""
        pandas, data = _pandas_or_error(), self.data
        if data["trace"] is not None:
            return pandas.DataFrame(data["trace"]["actions"])
        return pandas.DataFrame([{"figure": name, **value} for name, value in data["log"].items() if isinstance(value, dict)])


class Plans(Result):
    """The answer of `plan`: docs/reference/ranking-json.md."""

    _formats = ("json", "csv", "html", "md", "yaml", "schedule.csv", "svg")

    @property
    def fits(self) -> bool:
        """Whether there is a plan."""
        return self._core.fits

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search."""
        return self._core.interrupted

    def _need(self) -> None:
        if not self._core.known:
            raise NoPlanYet(self.text().rstrip())
        if not self._core.fits:
            raise DoesNotFit(self.text().rstrip())

    def text(self, width: int = _WIDTH, explain: bool = False) -> str:
        return self._core.text(_columns(width), bool(explain))

    @property
    def plans(self) -> List[Dict[str, Any]]:
        """The ranking, best first: dicts of docs/reference/ranking-json.md, plans[]."""
        self._need()
        return self.data["plans"]

    @property
    def best(self) -> Dict[str, Any]:
        """The first of them."""
        return self.plans[0]

    step_time = property(lambda self: self.best["step_time_s"], doc="seconds of one optimizer step of the best plan")
    throughput = property(lambda self: self.best["samples_per_s"], doc="samples per second of the best plan")
    bubble = property(lambda self: self.best["bubble_fraction"], doc="bubble of the best plan, a share of 1")
    peak_memory = property(lambda self: self.best["peak_bytes"], doc="bytes that the fullest device of the best plan must have")

    @property
    def gap(self) -> float:
        """How far the best plan may be from the optimum, a share of the bound."""
        self._need()
        return self.data["gap"]

    def scenario(self, number: int = 0) -> Any:
        """The scenario of a plan, which `simulate` takes."""
        from ._questions import Scenario

        self._need()
        return Scenario.from_yaml(self._core.scenario(self._index(number), self._command), name="plan.yaml")

    def simulate(self, number: int = 0) -> Simulation:
        """The plan, simulated: timeline, memory and all else."""
        self._need()
        return Simulation(self._core.simulate(self._index(number)), self._command)

    def _index(self, number: int) -> int:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < self._core.plans:
            raise wrong("number", f"is {str(number)[:40]!r}; the plans are 0 to {self._core.plans - 1}")
        return number

    def _rendered(self, format: str) -> Union[str, bytes]:
        self._need()
        if format == "csv":
            return self._core.csv()
        if format == "md":
            return self._core.markdown()
        if format == "html":
            return self._core.html(self._command)
        if format == "yaml":
            return self._core.scenario(0, self._command)
        return self.simulate().render(format)

    def to_pandas(self) -> Any:
        """A row per plan."""
        return _pandas_or_error().DataFrame(self.plans)

    def _repr_svg_(self) -> Optional[str]:
        return str(self.render("svg")) if self._core.fits else None


class Sweep(Result):
    """The answer of `sweep`: docs/reference/sweep.md."""

    _formats = ("json", "csv", "svg", "html")

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it before all points were priced."""
        return self._core.interrupted

    @property
    def rows(self) -> List[Dict[str, Any]]:
        """A dict per point."""
        return self.data["rows"]

    def text(self, width: int = _WIDTH, all: bool = False) -> str:
        return self._core.text(_columns(width), bool(all))

    def svg(self, x: str = "", y: str = "") -> str:
        """A plot. x: key of the grid; y: figure."""
        return self._core.svg(str(x), str(y))

    def _rendered(self, format: str) -> Union[str, bytes]:
        if format == "csv":
            return self._core.csv()
        return self._core.svg("", "") if format == "svg" else self._core.html("", "", self._command)

    def to_pandas(self) -> Any:
        """A row per point, as --csv has it."""
        import io

        return _pandas_or_error().read_csv(io.StringIO(self._core.csv()))

    def _repr_svg_(self) -> Optional[str]:
        try:
            return self.svg()
        except ValueError:  # a grid without numbers has no plot
            return None


class Capacity(Result):
    """The answer of `capacity`: docs/reference/capacity-json.md."""

    _formats = ("json", "csv", "md")

    @property
    def interrupted(self) -> bool:
        return self._core.interrupted

    @property
    def failed(self) -> str:
        """A line for each variant of the scenario that has no answer."""
        return self._core.failed

    @property
    def rows(self) -> List[Dict[str, Any]]:
        """A dict for the scenario, or for each of its variants."""
        return self.data["rows"]

    @property
    def largest(self) -> Optional[int]:
        """The largest value that fits, of the first row; None: no value does."""
        return self.rows[0]["largest"]

    def _rendered(self, format: str) -> Union[str, bytes]:
        return self._core.csv() if format == "csv" else self._core.markdown()

    def to_pandas(self) -> Any:
        return _pandas_or_error().DataFrame(self.rows)


class Comparison(Result):
    """The answer of `compare`: docs/reference/compare.md."""

    _formats = ("json", "html", "svg", "md")

    @property
    def same(self) -> bool:
        """Whether inputs and all figures are equal."""
        return self.data["same"]

    def _rendered(self, format: str) -> Union[str, bytes]:
        if format == "svg":
            return self._core.svg()
        return self._core.markdown() if format == "md" else self._core.html(self._command)

    def to_pandas(self) -> Any:
        """A row per figure: what, a, b."""
        return _pandas_or_error().DataFrame(self.data["figures"])

    def _repr_svg_(self) -> Optional[str]:
        try:
            return self._core.svg()
        except ValueError:  # a side that is a document has no timeline
            return None


class Reproduction(Result):
    """The answer of `reproduce`."""

    _formats = ("json", "csv", "html")

    @property
    def interrupted(self) -> bool:
        return self._core.interrupted

    def _rendered(self, format: str) -> Union[str, bytes]:
        return self._core.csv() if format == "csv" else self._core.html(self._command)

    def to_pandas(self) -> Any:
        """A row per cell."""
        import io

        return _pandas_or_error().read_csv(io.StringIO(self._core.csv()))

"""What pipewright raises."""
from __future__ import annotations

from typing import NamedTuple, Optional, Sequence


class Fault(NamedTuple):
    """One fault of an input: where it stands, of which key, and in words what is wrong and what to do."""

    file: str  # as it was named; "scenario" where it was given as a dict or as text; "": no file
    line: int  # from 1; 0: the whole file
    column: int
    key: str  # "plan.stages", or the argument; "": of no one key
    text: str

    @property
    def way_out(self) -> str:
        """The part of the text that says what to do, or ""."""
        return self.text.partition("; ")[2]

    def __str__(self) -> str:
        head = ""
        if self.file:
            head = f"{self.file}:{self.line}:{self.column}: " if self.line else f"{self.file}: "
        return head + (f"{self.key}: " if self.key else "") + self.text


class Error(Exception):
    """Everything that pipewright raises, but KeyboardInterrupt and MemoryError."""


class InputError(Error, ValueError):
    """A wrong scenario or a wrong argument. `faults` has all of them; the attributes are those of the first."""

    def __init__(self, faults: Sequence) -> None:
        self.faults = tuple(_as_called(Fault(*fault)) for fault in faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self):
        return type(self), ([tuple(fault) for fault in self.faults],)

    @property
    def file(self) -> str:
        return self.faults[0].file

    @property
    def line(self) -> Optional[int]:
        return self.faults[0].line or None

    @property
    def column(self) -> Optional[int]:
        return self.faults[0].column or None

    @property
    def key(self) -> str:
        return self.faults[0].key

    @property
    def way_out(self) -> str:
        return self.faults[0].way_out


class DoesNotFit(Error):
    """A figure was asked of a plan that does not fit its devices. The message lists remedies."""


class NoPlanYet(Error):
    """A plan was asked of a search that ended before it had one."""


class InternalError(Error, RuntimeError):
    """A fault of pipewright itself; please report it with what was asked."""

    def __init__(self, condition: str) -> None:
        super().__init__(f"a fault of pipewright itself: {condition}; please report it with what was asked")
        self.condition = condition

    def __reduce__(self):
        return type(self), (self.condition,)


def _as_called(fault: Fault) -> Fault:
    """Options of the command are arguments here: --over is over."""
    if not fault.key.startswith("--"):
        return fault
    return fault._replace(key=fault.key[2:].replace("-", "_"))


def wrong(key: str, text: str) -> InputError:
    return InputError([("", 0, 0, key, text)])

"""Processes that run a launch file for PyTorch, each with a deadline; a process that does not end names its op.

PyTorch is imported once, and every process is forked from there.
"""
import contextlib
import dataclasses
import json
import mmap
import os
import pathlib
import runpy
import signal
import socket
import tempfile
import time
import traceback

import torch
from torch.distributed.pipelining import schedules, stage


LONGEST_START = 120  # seconds until every rank is at its first op


@dataclasses.dataclass
class Ended:
    """What a rank has left behind."""
    status: int  # -9: ended at the deadline
    op: str  # that it was at
    ran: list  # compute actions, in the order in which they were run: "0F3"
    output: str


class Hang(Exception):
    """Ranks that were still running at the deadline."""


def watched(current, ran):
    """PyTorch's pipelining tells which op it is at, and which chunks it has run."""
    whole = schedules.record_function

    class Named(whole):
        def __init__(self, name, *more):
            current[:] = name.encode()[:len(current)].ljust(len(current), b"\0")
            super().__init__(name, *more)

    schedules.record_function = Named

    def recorded(name, letter):
        method = getattr(stage._PipelineStageBase, name)

        def run(self, number, *more, **named):
            kind = "I" if letter == "B" and not named.get("full_backward", True) else letter
            ran.append(f"{self.stage_index}{kind}{number}")
            return method(self, number, *more, **named)

        setattr(stage._PipelineStageBase, name, run)

    recorded("forward_one_chunk", "F")
    recorded("backward_one_chunk", "B")
    recorded("backward_weight_one_chunk", "W")


def run_rank(program, change, left, current, environment):
    """In the process of the rank."""
    ran = []
    os.environ.update(environment)
    torch.set_num_threads(1)
    watched(current, ran)
    try:
        names = runpy.run_path(str(program), run_name="plan")
        if change:
            # functions of the program look names up in its own globals
            names["main"].__globals__.update(change(names))
        names["main"]()
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    left.write_text(json.dumps(ran))
    return status


def free_port():
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(program, world, environment, seconds, change=None):
    """All ranks of a program, ended when for so many seconds none has begun another op. `change`: names of the program that are replaced,
    from those that it has. Raises Hang, which names the ranks that were still running and their ops."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        current = [mmap.mmap(-1, 128) for _ in range(world)]
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                out = os.open(folder / f"output{rank}", os.O_CREAT | os.O_WRONLY)
                os.dup2(out, 1), os.dup2(out, 2)
                where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                status = run_rank(program, change, folder / f"ran{rank}", current[rank],
                                  {**{key: str(value) for key, value in where.items()}, **environment})
                os._exit(status)
            children.append(child)
        statuses = [None] * world
        seen, end = None, time.monotonic() + LONGEST_START
        while None in statuses and time.monotonic() < end:
            ops = [each[:] for each in current]
            if any(statuses):  # one has failed: the others wait for it
                end = min(end, time.monotonic() + 5)
            elif ops != seen:
                seen, end = ops, time.monotonic() + (seconds if all(map(any, ops)) else LONGEST_START)
            for rank, child in enumerate(children):
                if statuses[rank] is None and os.waitpid(child, os.WNOHANG)[0]:
                    statuses[rank] = 0 if (folder / f"ran{rank}").exists() else 1
            time.sleep(0.02)
        late = [rank for rank, status in enumerate(statuses) if status is None]
        for rank in late:
            os.kill(children[rank], signal.SIGKILL)
            os.waitpid(children[rank], 0)
        ended = []
        for rank in range(world):
            left = folder / f"ran{rank}"
            ended.append(Ended(-9 if rank in late else statuses[rank], current[rank][:].rstrip(b"\0").decode(),
                               json.loads(left.read_text()) if left.exists() else [],
                               (folder / f"output{rank}").read_text(errors="replace")))
    failed = [rank for rank, each in enumerate(ended) if "Traceback" in each.output]
    if failed:
        raise RuntimeError(f"rank {failed[0]} failed at {ended[failed[0]].op or 'its start'}:\n{ended[failed[0]].output}")
    if late:
        raise Hang("; ".join(f"rank {rank} hangs at {ended[rank].op or 'its start'}" for rank in late))
    return ended

"""A program that a test starts has a time limit, which ends a hang and nothing else; with it ends what it has started."""
import os
import signal
import subprocess
import sys

LONGEST = 300  # seconds


def end_at_once(*_):
    """So that whoever ends the test ends what it has started, too."""
    sys.exit(128 + signal.SIGTERM)


signal.signal(signal.SIGTERM, end_at_once)


def run(command, *, longest=LONGEST, capture_output=False, check=False, input=None, **how):
    """As subprocess.run; the test ends with a word about it where the program does not end in time."""
    if capture_output:
        how.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if input is not None:
        how.update(stdin=subprocess.PIPE)
    process = subprocess.Popen(command, start_new_session=True, **how)
    try:
        out, err = process.communicate(input, timeout=longest)
    except BaseException as why:
        os.killpg(process.pid, signal.SIGKILL)  # not waited for yet: the group is there
        out, err = process.communicate()
        if isinstance(why, subprocess.TimeoutExpired):
            raise SystemExit(f"the test ended it after {longest} s: {' '.join(map(str, command))}\n{out}\n{err}") from why
        raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done

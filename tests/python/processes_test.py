#!/usr/bin/env python3
"""Threads, forks and Ctrl-C."""
import concurrent.futures
import multiprocessing
import os
import signal
import sys
import textwrap
import threading
import unittest

import needs
import pipewright as pw
import started

# Seconds of search, if nothing ends it.
LONG = "scenarios/what_if/llama3-405b.yaml"


def child(program, *, signals=1, after="begins"):
    """Runs a program in an interpreter of its own, and sends SIGINT once it has printed `after`; its output and status."""
    import subprocess

    process = subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True,
                               cwd=needs.SOURCE)
    try:
        printed = ""
        for line in process.stdout:
            printed += line
            if line.strip() == after:
                for _ in range(signals):
                    process.send_signal(signal.SIGINT)
                    threading.Event().wait(0.05)
        process.wait(timeout=started.LONGEST)
    finally:
        process.kill()
        process.stdout.close()
    return printed, process.returncode


def interrupted(ask, say):
    """Output of a program that is interrupted once it has something to show: later, where it had nothing yet."""
    for seconds in (1.5, 6, 24, 96):
        printed, status = child(f"""
            import threading, pipewright as pw
            def begins(): print("begins", flush=True)
            threading.Timer({seconds}, begins).start()
            try:
                answer = {ask}
                print({say})
                print(pw.plan({needs.QUICKSTART!r}, set={{"plan": "auto"}}).interrupted)
            except KeyboardInterrupt:
                print("nothing yet")
        """)
        if printed.splitlines()[1:] != ["nothing yet"]:
            break
    return printed.splitlines(), status


class Processes(unittest.TestCase):
    def test_threads_get_the_same_answers(self):
        sets = [{"training.micro_batches": m} for m in (4, 8, 12, 16)] * 3
        alone = [pw.simulate(needs.QUICKSTART, set=each).json for each in sets]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            self.assertEqual(list(pool.map(lambda each: pw.simulate(needs.QUICKSTART, set=each).json, sets)), alone)

    def test_other_threads_run_meanwhile(self):
        """A search in one thread ends because another one, which needs Python's lock, has done something."""
        turns = 0
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            search = pool.submit(pw.plan, LONG, gap=0, time_limit=1.0)
            while not search.done():
                turns += 1
            self.assertEqual(search.result().data["ended"], "the time limit")
        self.assertGreater(turns, 1000)

    def test_a_fork_goes_on(self):
        expected = pw.simulate(needs.QUICKSTART).json
        pw.sweep(needs.QUICKSTART, grid={"training.micro_batches": [4, 8]}, jobs=2)  # has had threads of its own
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for text in pool.map(_simulated, [needs.QUICKSTART] * 4):
                self.assertEqual(text, expected)

    def test_a_spawned_process_answers(self):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            self.assertEqual(pool.map(_simulated, [needs.QUICKSTART]), [pw.simulate(needs.QUICKSTART).json])

    def test_ctrl_c_ends_a_plan_with_the_best_so_far(self):
        said = interrupted(f"pw.plan({LONG!r}, gap=0, time_limit=600)",
                           "answer.interrupted, answer.fits, answer.data['ended'], len(answer.plans) > 0")
        self.assertEqual(said, (["begins", "True True interrupted True", "False"], 0))

    def test_ctrl_c_ends_a_sweep_with_its_rows(self):
        said = interrupted(f"pw.sweep({needs.QUICKSTART!r}, grid={{'training.micro_batches': list(range(1, 9001))}}, jobs=1)",
                           "answer.interrupted, len(answer.rows) < 9000")
        self.assertEqual(said, (["begins", "True True", "False"], 0))

    def test_a_second_ctrl_c_is_pythons(self):
        """Whether it comes before the call is over or behind it."""
        printed, status = child(f"""
            import signal, threading, time, pipewright as pw
            def begins(): print("begins", flush=True)
            threading.Timer(1.5, begins).start()
            try:
                pw.plan({LONG!r}, gap=0, time_limit=600)
                time.sleep(60)
            except KeyboardInterrupt:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                print("KeyboardInterrupt")
        """, signals=2)
        self.assertEqual((printed.splitlines(), status), (["begins", "KeyboardInterrupt"], 0))

    def test_a_handler_of_ones_own_stays(self):
        printed, status = child(f"""
            import signal, threading, pipewright as pw
            signal.signal(signal.SIGINT, lambda *_: print("mine", flush=True))
            def begins(): print("begins", flush=True)
            threading.Timer(0.3, begins).start()
            plans = pw.plan({LONG!r}, gap=0, time_limit=1.5)
            print(plans.interrupted)
        """)
        self.assertEqual((sorted(printed.splitlines()), status), (["False", "begins", "mine"], 0))

    def test_ctrl_c_is_pythons_again_afterwards(self):
        printed, status = child("""
            import pipewright as pw, signal
            pw.plan("scenarios/quickstart.yaml", set={"plan": "auto"})
            print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
            try:
                print("begins", flush=True)
                import time
                time.sleep(60)
            except KeyboardInterrupt:
                print("KeyboardInterrupt")
        """)
        self.assertEqual((printed.splitlines(), status), (["True", "begins", "KeyboardInterrupt"], 0))

    def test_a_library_prints_nothing(self):
        run = started.run([sys.executable, "-B", "-c", "import pipewright as pw; pw.plan('scenarios/quickstart.yaml', set={'plan': 'auto'}); "
                           "pw.capacity('scenarios/quickstart.yaml', 'training.micro_batch_size')"], cwd=needs.SOURCE,
                          capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))


def _simulated(path):
    return pw.simulate(path).json


if __name__ == "__main__":
    needs.main()

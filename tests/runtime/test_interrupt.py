"""Ctrl-C is heard wherever it arrives."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from tilewright.runtime.interrupt import heard_interrupts

# Each interrupts itself in a place where Python drops exceptions, once, and then runs for a while.
PROGRAM = """
import os, signal, sys, time, weakref
from tilewright.runtime.interrupt import heard_interrupts

def press():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass

class Deleted:
    def __del__(self):
        press()

class Key:
    pressed = False
    def __hash__(self):
        if Key.armed:
            press()
        return 1

class Value:
    pass

def work():
    if sys.argv[1] == "__del__":
        Deleted()
    elif sys.argv[1] == "weak reference":
        Key.armed = False
        table, value = weakref.WeakValueDictionary(), Value()
        table[Key()] = value
        Key.armed = True
        del value
    else:
        press()
    time.sleep(20)
    print("swallowed")

try:
    if sys.argv[2] == "heard":
        with heard_interrupts():
            work()
    else:
        time.sleep = lambda seconds: None
        work()
except KeyboardInterrupt:
    print("interrupted")
"""


def outcome(place: str, how: str) -> str:
    done = subprocess.run([sys.executable, "-c", PROGRAM, place, how], capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("place", ["plain code", "__del__", "weak reference"])
def test_an_interrupt_is_heard_in(place: str) -> None:
    assert outcome(place, "heard") == "interrupted"


@pytest.mark.parametrize("place", ["__del__", "weak reference"])
def test_python_alone_drops_an_interrupt_in(place: str) -> None:
    assert outcome(place, "python") == "swallowed"


def test_the_programs_own_handler_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    with heard_interrupts():
        assert signal.getsignal(signal.SIGINT) is not before or before is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is before
    own = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with heard_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, own)


def test_other_threads_are_left_alone() -> None:
    seen = []

    def work() -> None:
        with heard_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]

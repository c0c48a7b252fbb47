"""The lock of a device: time held, and work that waits until it is free."""

from __future__ import annotations

import threading
import time

import pytest

from ptxbench.devices.cuda.turnstile import Turnstile


def test_time_counts_once_however_deep_it_is_held() -> None:
    turnstile = Turnstile()
    with turnstile, turnstile:
        time.sleep(0.05)
    held = turnstile.held_s
    assert 0.05 <= held < 0.09
    time.sleep(0.02)
    assert turnstile.held_s == held


def test_work_for_a_free_lock_is_done_at_once() -> None:
    turnstile, done = Turnstile(), list[int]()
    turnstile.when_free(lambda: done.append(1))
    assert done == [1]


def test_work_for_a_held_lock_waits_until_it_is_free_and_keeps_its_order() -> None:
    turnstile, done = Turnstile(), list[int]()
    with turnstile:
        with turnstile:
            other = threading.Thread(target=lambda: [turnstile.when_free(lambda n=n: done.append(n)) for n in range(3)])
            other.start()
            other.join(5)
            assert not other.is_alive(), "when_free must not wait for the lock"
            turnstile.when_free(lambda: done.append(3))
        assert done == []
    assert done == [0, 1, 2, 3]


def test_work_holds_the_lock_and_frees_it_when_it_fails() -> None:
    turnstile = Turnstile()

    def fail() -> None:
        taken: list[bool] = []
        other = threading.Thread(target=lambda: taken.append(turnstile._lock.acquire(blocking=False)))  # pyright: ignore[reportPrivateUsage]
        other.start()
        other.join(5)
        raise RuntimeError(str(taken))

    with pytest.raises(RuntimeError, match=r"\[False\]"):
        turnstile.when_free(fail)
    with turnstile:
        pass


def test_many_threads_leave_no_work_behind() -> None:
    turnstile, done, inside = Turnstile(), list[int](), list[int]()

    def hold(first: int) -> None:
        for n in range(first, first + 200):
            with turnstile:
                inside.append(n)
                assert inside == [n]
                inside.pop()
            turnstile.when_free(lambda n=n: done.append(n))

    threads = [threading.Thread(target=hold, args=(200 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == list(range(1600))

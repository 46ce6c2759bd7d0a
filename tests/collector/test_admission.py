"""Admission: never more inside than the budget, first come first served, and nobody is let in twice or forgotten."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.admission import Admission
from collector.wal import Overloaded

LONG = 20.0


def test_the_budget_holds_and_room_is_given_back() -> None:
    house = Admission(100, 10, patience_s=0.01)
    with house.entered_from_thread(60) as seat:
        with pytest.raises(Overloaded) as refused, house.entered_from_thread(41):
            pass
        assert refused.value.retry_after_s == 1
        seat.resize(59)
        with house.entered_from_thread(41):
            assert (house.bytes, house.requests) == (100, 2)
    assert (house.bytes, house.requests, house.refused) == (0, 0, 1)


def test_an_empty_house_takes_any_size_and_the_count_is_bounded() -> None:
    house = Admission(1, 2, patience_s=0.01)
    with house.entered_from_thread(10**9):
        assert house.requests == 1
    with house.entered_from_thread(0), house.entered_from_thread(0):  # noqa: SIM117 - two are in, the third is not
        with pytest.raises(Overloaded), house.entered_from_thread(0):
            pass


def test_who_waits_is_let_in_by_who_leaves_in_order() -> None:
    house = Admission(10, 10, patience_s=LONG)
    order: list[int] = []
    inside = threading.Event()

    def visit(number: int) -> None:
        with house.entered_from_thread(10):
            order.append(number)

    with ThreadPoolExecutor(4) as threads:
        with house.entered_from_thread(10):
            for number in range(4):
                threads.submit(visit, number)
                while len(house._waiting) <= number:
                    inside.wait(0.001)
        assert threads.submit(lambda: None).result(LONG) is None
    assert order == [0, 1, 2, 3]
    assert (house.bytes, house.requests) == (0, 0)


def test_one_that_gives_up_makes_way_for_a_smaller_one() -> None:
    async def play() -> None:
        house = Admission(10, 10, patience_s=0.05)

        async def enter(size: int) -> str:
            try:
                async with house.entered(size):
                    return "in"
            except Overloaded:
                return "refused"

        async with house.entered(6):
            assert list(await asyncio.gather(enter(5), enter(4))) == ["refused", "in"]
        assert (house.bytes, house.requests, len(house._waiting)) == (0, 0, 0)

    asyncio.run(play())


def test_no_more_wait_than_may_be_inside() -> None:
    async def play() -> None:
        house = Admission(10, 2, patience_s=LONG)

        async def enter() -> None:
            async with house.entered(10):
                await asyncio.sleep(0)

        async with house.entered(10):
            waiting = [asyncio.create_task(enter()) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                await enter()
        await asyncio.gather(*waiting)

    asyncio.run(play())


def test_a_task_that_is_cancelled_leaves_nothing_behind() -> None:
    async def play() -> None:
        house = Admission(10, 10, patience_s=LONG)

        async def enter() -> None:
            async with house.entered(10):
                await asyncio.sleep(LONG)

        waits, is_let_in = asyncio.create_task(enter()), None
        async with house.entered(10):
            is_let_in = asyncio.create_task(enter())
            await asyncio.sleep(0.01)
            waits.cancel()
            await asyncio.sleep(0.01)
        is_let_in.cancel()  # its turn came, but it does not know yet
        await asyncio.gather(waits, is_let_in, return_exceptions=True)
        assert (house.bytes, house.requests, len(house._waiting)) == (0, 0, 0)

    asyncio.run(play())


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=40), patience_s=st.sampled_from([0.0, 0.002, LONG]))
def test_threads_and_the_loop_share_one_budget(sizes: list[int], patience_s: float) -> None:
    house = Admission(100, 5, patience_s=patience_s)
    over: list[int] = []
    seen = threading.Lock()
    inside = 0

    def note(change: int, size: int) -> None:
        nonlocal inside
        with seen:
            inside += change * size
            if inside > 100:
                over.append(inside)

    def from_thread(size: int) -> bool:
        try:
            with house.entered_from_thread(size):
                note(1, size)
                note(-1, size)
        except Overloaded:
            return False
        return True

    async def from_loop(size: int) -> bool:
        try:
            async with house.entered(size):
                note(1, size)
                await asyncio.sleep(0)
                note(-1, size)
        except Overloaded:
            return False
        return True

    async def play() -> list[bool]:
        with ThreadPoolExecutor(4) as threads:
            loop = asyncio.get_running_loop()
            visits = [
                loop.run_in_executor(threads, from_thread, size) if index % 2 else from_loop(size)
                for index, size in enumerate(sizes)
            ]
            return list(await asyncio.gather(*visits))

    came = asyncio.run(play())
    assert not over
    assert (house.bytes, house.requests, len(house._waiting)) == (0, 0, 0)
    assert house.refused == came.count(False)

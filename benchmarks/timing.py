"""Times and memory of calls on a GPU. On a CPU the same functions work for a trial, without graphs and memory."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_FEWEST_CALLS = 3  # that warm up


@dataclass(frozen=True)
class Timer:
    """Measures calls on one device."""

    device: torch.device
    repeats: int = 15
    warm_up: float = 0.2
    """Seconds of calls before the first that counts, which a GPU needs to reach its clock rate; 0 for none."""

    def ms(self, call: Callable[[], object]) -> float:
        """Median of the milliseconds of a call, after some that warm up."""
        spent, calls = 0.0, 0
        while self.warm_up and (spent < self.warm_up or calls < _FEWEST_CALLS):
            spent, calls = spent + self._once(call) / 1e3, calls + 1
        return statistics.median(self._once(call) for _ in range(self.repeats))

    def _once(self, call: Callable[[], object]) -> float:
        if self.device.type == "cpu":
            start = time.perf_counter()
            call()
            return 1e3 * (time.perf_counter() - start)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def recorded(self, call: Callable[[], object]) -> Callable[[], object]:
        """A function that replays the call from a CUDA graph."""
        if self.device.type == "cpu":
            return call
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries choose kernels and allocate workspaces in their first calls
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def peak_gib(self, call: Callable[[], object]) -> float:
        """The most memory that a call takes, above what is allocated before it; 0 on a CPU."""
        if self.device.type == "cpu":
            call()
            return 0.0
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**30

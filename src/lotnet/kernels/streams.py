"""Run independent jobs concurrently on one GPU, by CUDA streams."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor


def concurrently(jobs: Sequence[Callable[[], Tensor]], like: Tensor) -> list[Tensor]:
    """Run independent jobs and return their results; if `like` is on a GPU, each job has its own stream.

    Small matrices leave most of a GPU idle, so their kernels can run beside the kernels of large ones. Autograd runs
    each job's backward pass on the same stream.
    """
    if not like.is_cuda:
        return [job() for job in jobs]
    main = torch.cuda.current_stream(like.device)
    results = []
    for job, stream in zip(jobs, _streams(len(jobs), like.device), strict=True):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            results.append(job())
    for result, stream in zip(results, _streams(len(jobs), like.device), strict=True):
        main.wait_stream(stream)
        result.record_stream(main)  # allocated on one stream, used and freed on another
    return results


@lru_cache(maxsize=16)
def _streams(count: int, device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(count))

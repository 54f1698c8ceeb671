"""Independent work side by side on one GPU."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor


def concurrently(jobs: Sequence[Callable[[], Tensor]], like: Tensor) -> list[Tensor]:
    """The results of independent jobs, each on a stream of its own where `like` is on a GPU.

    Small matrices leave most of a GPU idle; their kernels run beside those of large ones. Autograd takes each job's
    backward pass to the same stream.
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
        result.record_stream(main)  # made on one stream and freed by another's user
    return results


@lru_cache(maxsize=16)
def _streams(count: int, device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(count))

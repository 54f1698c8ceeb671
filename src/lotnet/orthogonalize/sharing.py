"""Orthogonalisation divided among the processes of data-parallel training.

Every process has every weight and needs every operator. A layer's polar factors are the same everywhere, so one
process, the layer's owner, computes them and sends them to the others. In the backward pass, the gradients with respect
to the factors W are summed at the owner, which takes them through the parametrization once. The others contribute zero
for that weight V, and the average that data-parallel training takes over its N processes anyway gives all of them

    (1/N) (dW/dV)^T (sum of all processes' gradients with respect to W).

Every process would get the same gradient by computing all factors itself.

What is sent is larger than the kernel: the distinct matrices of all frequencies hold as many numbers for each pair of
channels as the padded image has pixels, where the kernel has 9. They are sent once in each direction. So sharing saves
time only for wide matrices, which take long to orthogonalise: `is_worth_sharing` is the rule.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from lotnet.kernels import dispatch
from lotnet.operators import Operator
from lotnet.orthogonalize.grouping import Wanted, joint_operators, with_settings
from lotnet.orthogonalize.schedules import is_lot
from lotnet.parametrizations import Geometry
from lotnet.parametrizations.lot import joined, polar_factors, split


def is_worth_sharing(geometry: Geometry, weight: Tensor) -> bool:
    """Whether one process should compute a layer for all: a fixed rule, so that a resumed run shares the same layers.

    Both the arithmetic that sharing saves and the bytes it sends are proportional to (N - 1) / N, so that the number of
    processes N does not matter. On GPUs, square layers are shared from 140 channels on, on CPUs from 2.
    """
    bytes_sent = 2 * 4 * numbers(geometry)  # to the others, and as gradients back
    return _operations(geometry) > dispatch.operations_per_byte(weight) * bytes_sent


class SharedFactors:
    """The polar factors of shared layers, in one buffer with a row for each process.

    A step calls `compute`, `gather`, then `operators` for its forward pass; after the backward pass `collect`,
    `scatter` and `backward`. Only `gather` and `scatter` communicate. They work in place, so the others can be recorded
    as CUDA graphs.
    """

    def __init__(self, layers: Wanted) -> None:
        self._rank, processes = dist.get_rank(), dist.get_world_size()
        self._layers = [
            (layer, geometry)
            for layer, geometry in layers
            if is_lot(layer) and layer.weight.requires_grad and is_worth_sharing(geometry, layer.weight)
        ]
        owners = assign_owners([_operations(g) for _, g in self._layers], processes)
        self._owned = [[n for n, owner in enumerate(owners) if owner == rank] for rank in range(processes)]
        self._buffer: Tensor | None = None
        self._leaves: dict[int, list[Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._layers)

    def compute(self) -> None:
        """Compute this process's factors, and write them into its row."""
        mine = [self._layers[n] for n in self._owned[self._rank]]
        self._own = [w for factors in polar_factors([with_settings(*layer) for layer in mine]) for w in factors]
        if self._buffer is None:
            self._allocate()
        assert self._buffer is not None
        self._buffer.zero_()
        _write(self._own, self._buffer[self._rank])

    def gather(self) -> None:
        """Give all processes all rows."""
        assert self._buffer is not None
        if dist.get_backend() == "nccl":
            dist.all_gather_into_tensor(self._buffer, self._buffer[self._rank])
        else:  # gloo knows nothing better for tensors on a GPU; the other rows are zero
            dist.all_reduce(self._buffer)

    def operators(self, wanted: Wanted) -> list[Operator]:
        """The operators of layers at these geometries: of shared ones from the buffer, of others computed here."""
        shared = {layer: n for n, layer in enumerate(self._layers)}
        rest = iter(joint_operators([layer for layer in wanted if layer not in shared]))
        self._leaves = self._leaves or self._read()
        return [joined(self._leaves[shared[w]], w[1]) if w in shared else next(rest) for w in wanted]

    def collect(self) -> None:
        """Write the gradients with respect to all factors into the buffer."""
        assert self._buffer is not None
        for rank, owned in enumerate(self._owned):
            leaves = [leaf for n in owned for leaf in self._leaves[n]]
            _write([torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves], self._buffer[rank])
        self._leaves = {}

    def scatter(self) -> None:
        """Sum each process's row over all processes, at that process."""
        assert self._buffer is not None
        if dist.get_backend() == "nccl":
            dist.reduce_scatter_tensor(self._buffer[self._rank], self._buffer)
        else:
            dist.all_reduce(self._buffer)

    def backward(self) -> None:
        """Pass the sums on to this process's kernels. The kernels of other processes get zero."""
        assert self._buffer is not None
        sums = _views(self._buffer[self._rank], [(w.shape, w.dtype) for w in self._own])
        if self._own:
            torch.autograd.backward(self._own, [total.clone() for total in sums])
        del self._own
        for layer, _ in self._layers:
            if layer.weight.grad is None:
                layer.weight.grad = torch.zeros_like(layer.weight)

    def _allocate(self) -> None:
        with torch.no_grad():  # factors have the shapes of the matrices
            known = split([(layer.free_weight(), g) for layer, g in self._layers])
        self._shapes = [[(v.shape, v.dtype) for v in matrices] for matrices in known]
        row = max(sum(v.numel() * (1 + v.is_complex()) for n in owned for v in known[n]) for owned in self._owned)
        weight = self._layers[0][0].free_weight()
        self._buffer = torch.zeros(len(self._owned), row, dtype=weight.dtype, device=weight.device)

    def _read(self) -> dict[int, list[Tensor]]:
        """Leaves of autograd's graph for all factors, which share the buffer's memory."""
        assert self._buffer is not None
        leaves: dict[int, list[Tensor]] = {}
        for row, owned in zip(self._buffer, self._owned, strict=True):
            views = iter(_views(row, [shape for n in owned for shape in self._shapes[n]]))
            leaves |= {n: [next(views).detach().requires_grad_() for _ in self._shapes[n]] for n in owned}
        return leaves


def assign_owners(costs: list[float], processes: int) -> list[int]:
    """Assign a process to each cost: the most expensive first, each to the process with the least work so far."""
    loads, owners = [0.0] * processes, [0] * len(costs)
    for n in sorted(range(len(costs)), key=lambda n: -costs[n]):
        owners[n] = min(range(processes), key=lambda r: loads[r])
        loads[owners[n]] += costs[n]
    return owners


def _operations(geometry: Geometry) -> float:
    """Operations of a polar factor with its gradient, at four polynomials and eight steps for the gradient.

    A product of m x n and n x m matrices takes 2 m^2 n for real ones, four times that for complex ones, of which there
    are half as many as the grid has points. Hermitian products take half.
    """
    m, n = sorted((geometry.out_channels, geometry.in_channels))
    points = 1 if geometry.kernel_size == 1 else 2 * geometry.grid.rows * geometry.grid.columns
    return geometry.groups * 2 * points * m * m * (9.5 * n + 12 * m)


def numbers(geometry: Geometry) -> int:
    """Numbers in the distinct matrices of a layer."""
    points = 1 if geometry.kernel_size == 1 else geometry.grid.rows * geometry.grid.columns
    return geometry.groups * points * geometry.out_channels * geometry.in_channels


def _write(tensors: Sequence[Tensor], row: Tensor) -> None:
    flat = [_as_real(tensor.detach()).reshape(-1) for tensor in tensors]
    if flat:
        torch.cat(flat, out=row[: sum(len(part) for part in flat)])


def _views(row: Tensor, shapes: Sequence[tuple[torch.Size, torch.dtype]]) -> list[Tensor]:
    views, start = [], 0
    for shape, dtype in shapes:
        sizes = (*shape, 2) if dtype.is_complex else shape
        part = row[start : start + shape.numel() * (1 + dtype.is_complex)].view(sizes)
        start += part.numel()
        views.append(torch.view_as_complex(part) if dtype.is_complex else part)
    return views


def _as_real(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs of reals: not every communication backend supports complex ones."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor

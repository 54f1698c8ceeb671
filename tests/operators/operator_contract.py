"""The contract of `Operator`, as checks for any form."""

import torch
from torch import Tensor, nn

from lotnet import OrthogonalConv2d, orthogonalized
from lotnet.frozen.freezing import freeze_operator
from lotnet.operators import Operator
from lotnet.parametrizations import Parametrization

CPU = torch.device("cpu")


@torch.no_grad()
def matrix(apply, shape: tuple[int, int, int], dtype: torch.dtype = torch.float64) -> Tensor:
    """The dense matrix of a linear map of images of `shape`."""
    impulses = torch.eye(shape[0] * shape[1] * shape[2], dtype=dtype).view(-1, *shape)
    return apply(impulses).flatten(1).T


def check_apply(operator: Operator, shape: tuple[int, int, int]) -> None:
    """Linear, and differentiable in the image and in every tensor."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, *shape, dtype=torch.float64)
    assert torch.allclose(operator.apply(2 * x - y), 2 * operator.apply(x) - operator.apply(y), atol=1e-10)
    tensors = [tensor.detach().clone().requires_grad_() for tensor in operator.tensors()]
    image = torch.randn(1, *shape, dtype=torch.float64, requires_grad=True)
    assert tensors
    assert torch.autograd.gradcheck(
        lambda x, *numbers: operator.with_tensors(numbers).apply(x), (image, *tensors), fast_mode=True
    )


def check_rebuilt(operator: Operator, shape: tuple[int, int, int]) -> None:
    """`with_tensors` gives the same operator for equal tensors, and another one for other tensors."""
    again = operator.with_tensors([tensor.clone() for tensor in operator.tensors()])
    assert type(again) is type(operator)
    assert torch.equal(matrix(again.apply, shape), matrix(operator.apply, shape))
    halved = operator.with_tensors([tensor / 2 for tensor in operator.tensors()])
    assert not torch.allclose(matrix(halved.apply, shape), matrix(operator.apply, shape))


def check_adjoint(operator: Operator, shape: tuple[int, int, int]) -> None:
    """`adjoint` is the transposed matrix, and the transpose of it is the operator."""
    forward = matrix(operator.apply, shape)
    outputs = (forward.shape[0] // (shape[1] * shape[2]), *shape[1:])
    adjoint = operator.adjoint(shape[0])
    assert torch.allclose(matrix(adjoint.apply, outputs), forward.T, atol=1e-12)
    assert torch.allclose(matrix(adjoint.adjoint(outputs[0]).apply, shape), forward, atol=1e-12)


def check_cast(operator: Operator, shape: tuple[int, int, int]) -> None:
    """Complex numbers stay complex, and the map is the same to the new precision."""
    single = operator.to(CPU, torch.float32)
    for old, new in zip(operator.tensors(), single.tensors(), strict=True):
        assert new.is_complex() == old.is_complex()
        assert new.dtype in (torch.float32, torch.complex64)
    expected, found = matrix(operator.apply, shape), matrix(single.apply, shape, torch.float32)
    assert found.dtype == torch.float32
    assert (found.double() - expected).abs().max() < 1e-5
    back = single.to(CPU, torch.float64)
    assert all(tensor.dtype in (torch.float64, torch.complex128) for tensor in back.tensors())


def check_frozen(operator: Operator, shape: tuple[int, int, int]) -> None:
    """The frozen module computes the operator, and its proved bound is at least the true norm and close to it."""
    bias = torch.linspace(-1, 1, matrix(operator.apply, shape).shape[0] // (shape[1] * shape[2]), dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        module = freeze_operator(operator, shape, bias, dtype)
        assert module.fits(shape) and module.output_shape(shape) == (len(bias), *shape[1:])
        zero = module(torch.zeros(1, *shape, dtype=dtype))
        assert torch.allclose(zero, bias.to(dtype)[:, None, None].expand_as(zero))
        stored = matrix(lambda x, m=module, b=zero: (m(x.to(m.precision)) - b).double(), shape)
        assert (stored - matrix(operator.apply, shape)).abs().max() < 1e-5
        norm = float(torch.linalg.matrix_norm(stored, 2))
        bound = float(module.lipschitz_bound())
        assert norm <= bound * (1 + 1e-6)
        assert bound <= max(1.0, norm) * 1.2, "proved, and worth something"
    doubled = operator.with_tensors([3 * tensor for tensor in operator.tensors()])
    changed = freeze_operator(doubled, shape, bias, torch.float64)
    assert float(changed.lipschitz_bound()) >= 0.999 * float(torch.linalg.matrix_norm(matrix(doubled.apply, shape), 2))


def check_orthogonalized(parametrization: Parametrization) -> None:
    """Layers in a block of `orthogonalized` compute the same gradients as layers on their own."""
    x = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alone, network = _network(parametrization), _network(parametrization)
    alone(x).square().sum().backward()
    with orthogonalized(network):
        for part in x.chunk(2):
            network(part).square().sum().backward()
    for mine, expected in zip(network.parameters(), alone.parameters(), strict=True):
        assert mine.grad is not None and expected.grad is not None
        torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-8, atol=1e-10)


def _network(parametrization: Parametrization) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [OrthogonalConv2d(2, 3, 3, parametrization=parametrization) for _ in range(1)]
    layers += [OrthogonalConv2d(3, 3, 3, parametrization=parametrization) for _ in range(2)]
    network = nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_()
    return network

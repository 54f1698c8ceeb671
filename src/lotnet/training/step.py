"""One training step: gradients, clipping, optimizer and weight average."""

from collections.abc import Generator

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor, nn

from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.config import RunConfig
from lotnet.layers import Centering
from lotnet.layers.trace import trace_geometries
from lotnet.orthogonalize import CapturedGradients, schedules
from lotnet.orthogonalize.block import operators_as_leaves, orthogonal_layers
from lotnet.orthogonalize.captured import Action, run
from lotnet.orthogonalize.grouping import joint_operators, largest_singular_value
from lotnet.orthogonalize.sharing import SharedFactors
from lotnet.runs.checkpoint import add_prefix, optimizer_tensors, restore_optimizer, strip_prefix
from lotnet.training.average import FlatGradients, WeightAverage
from lotnet.training.optim import learning_rate, make_optimizer
from lotnet.training.precision import arithmetic


class TrainingStep:
    """Callable that trains a model on one batch: `step(images, labels, progress)` returns the loss.

    Invariant: `tensors()` is everything that later steps depend on, and `load_tensors` restores it.
    """

    def __init__(self, config: RunConfig, model: nn.Sequential, example: Tensor, fabric: Fabric) -> None:
        """`example` is one image. A forward pass of it shows the image size at each layer."""
        self.model = model.to(fabric.device, example.dtype)
        self._config = config
        self._tf32 = config.trainer.precision == "tf32"
        self._optimizer = make_optimizer(config.optimizer, model)
        self._lipschitz = pixel_lipschitz(model)
        self._average = WeightAverage(model, config.trainer.ema) if config.trainer.ema else None
        self._layers = orthogonal_layers(model)
        traced = trace_geometries(model, example)
        self._in_batches = [layer for layer in traced.items() if schedules.in_batches(layer[0])]
        parallel = dist.is_available() and dist.is_initialized()
        if parallel:
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)
        self._flat = FlatGradients(model.parameters()) if parallel else None
        self._shared = SharedFactors(list(traced.items())) if parallel else None
        # The means of Centering go over all processes, inside of the forward pass, which then cannot be recorded.
        communicates = parallel and any(isinstance(module, Centering) for module in model.modules())
        record = config.trainer.cuda_graph and not communicates
        self._recorded = CapturedGradients(self.gradients, model, measure_every=None) if record else None

    @property
    def evaluated(self) -> nn.Sequential:
        """The model that is evaluated and saved: the average of the weights if there is one, otherwise `model`."""
        return self.model if self._average is None else self._average.model

    def begin_epoch(self, resumed: bool) -> None:
        """Switch to training mode, and measure LOT's kernels. A resumed epoch keeps the schedules it had."""
        self.model.train()
        keep = resumed and bool(schedules.lower_ends(self._in_batches).all())
        if self._in_batches and not keep and self._measure() and self._recorded:
            self._recorded.reset()

    def _measure(self) -> bool:
        before = schedules.lower_ends(self._in_batches)
        schedules.measure(self._in_batches)
        if self._flat:  # all processes record at the same time, even where two kinds of GPU measure differently
            found = schedules.lower_ends(self._in_batches).to(next(self.model.parameters()).device)
            dist.all_reduce(found, dist.ReduceOp.MIN)
            schedules.restore(self._in_batches, found.cpu())
        return not torch.equal(before, schedules.lower_ends(self._in_batches))

    def __call__(self, images: Tensor, labels: Tensor, progress: float) -> Tensor:
        """Take one step at `progress` in [0, 1) of the run; returns the batch's loss in double precision."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._config.optimizer, progress)
        with arithmetic(tf32=self._tf32):
            if self._recorded:
                loss = self._recorded(images, labels, progress)
            else:
                self._optimizer.zero_grad()
                loss = run(self.gradients, (images, labels, progress))
            if self._config.optimizer.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), self._config.optimizer.clip)
            self._optimizer.step()
            if self._average is not None:
                self._average.update(self.model)
        return loss

    def gradients(self, images: Tensor, labels: Tensor, progress: float | Tensor) -> Generator[Action, None, Tensor]:
        """Compute loss and gradients. This is the part of a step that is recorded, but for what it yields."""
        if self._shared:
            self._shared.compute()
            yield self._shared.gather
        with operators_as_leaves(self._layers, self._shared.operators if self._shared else joint_operators):
            logits = self.model(images)
            pairwise = pairwise_constants(self.model[-1], logits.shape[1], logits)
            loss = self._config.loss(logits, labels, self._lipschitz, pairwise, progress)
            loss.backward()
        if self._shared:
            self._shared.collect()
            yield self._shared.scatter
            self._shared.backward()
        if self._flat:
            self._flat.collect()
            yield self._flat.sum_up
            self._flat.divide()
        return loss.detach().double()

    def largest_singular_value(self) -> float | None:
        """Upper bound over all operators that training uses now; None if no kernels are measured, as on a CPU."""
        if not self._in_batches:
            return None
        with arithmetic(tf32=self._tf32):
            return largest_singular_value(self._in_batches)

    def tensors(self) -> dict[str, Tensor]:
        """Weights, weight average, optimizer state and schedules, by their names in a checkpoint."""
        return {
            **add_prefix("weights", self.model.state_dict()),
            **add_prefix("average", {} if self._average is None else self.evaluated.state_dict()),
            **optimizer_tensors(self._optimizer, self.model),
            **({"schedules.lower_ends": schedules.lower_ends(self._in_batches)} if self._in_batches else {}),
        }

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors()` returned, perhaps on another device."""
        self.model.load_state_dict(strip_prefix(tensors, "weights"))
        if self._average is not None:
            self.evaluated.load_state_dict(strip_prefix(tensors, "average"))
        restore_optimizer(self._optimizer, self.model, tensors)
        stored = strip_prefix(tensors, "schedules")
        if not self._in_batches:  # a run may move from a GPU to a CPU
            return
        if "lower_ends" in stored:
            schedules.restore(self._in_batches, stored["lower_ends"])
        elif "lengths" in stored:
            schedules.restore_lengths(self._in_batches, stored["lengths"])

"""One training step: gradients, clipping, optimizer and weight average."""

from collections.abc import Iterator
from contextlib import contextmanager

from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.config import RunConfig
from lotnet.orthogonalize import orthogonalized
from lotnet.orthogonalize.grouping import GroupedOrthogonalization
from lotnet.orthogonalize.sharing import SharedOrthogonalization
from lotnet.runs.checkpoint import add_prefix, optimizer_tensors, restore_optimizer, strip_prefix
from lotnet.training.graph import RecordedGradients
from lotnet.training.launch import on_one_gpu
from lotnet.training.optim import learning_rate, make_optimizer
from lotnet.training.precision import arithmetic


class TrainingStep:
    """Callable that trains a model on one batch: `step(images, labels, progress)` returns the loss.

    Invariant: `tensors()` is everything that later steps depend on, and `load_tensors` restores it.
    """

    def __init__(self, config: RunConfig, model: nn.Sequential, example: Tensor, fabric: Fabric) -> None:
        """`example` is one image. A forward pass of it shows the image size at each layer."""
        self.model = model
        self._config, self._fabric = config, fabric
        self._tf32 = config.trainer.precision == "tf32"
        self._optimizer = make_optimizer(config.optimizer, model)
        self._parallel, self._stepper = fabric.setup(model, self._optimizer)
        self._lipschitz = pixel_lipschitz(model)
        self._average = averaged(model, config.trainer.ema) if config.trainer.ema else None
        share = config.trainer.share_orthogonalization and fabric.world_size > 1
        self._sharing = SharedOrthogonalization(model, example) if share else None
        self._grouping = group_layers(model, example, fabric)
        record = config.trainer.cuda_graph and on_one_gpu(fabric)
        self._recorded = RecordedGradients(self.gradients, model) if record else None

    @property
    def evaluated(self) -> nn.Sequential:
        """The model that is evaluated and saved: the average of the weights if there is one, otherwise `model`."""
        if self._average is None:
            return self.model
        assert isinstance(self._average.module, nn.Sequential)
        return self._average.module

    def begin_epoch(self, resumed: bool) -> None:
        """Switch to training mode, and choose the lengths of LOT's schedules. A resumed epoch keeps those it had."""
        self._parallel.train()
        keep = self._grouping is None or (resumed and bool(self._grouping.lengths.all()))
        if self._grouping and not keep and self._grouping.refresh() and self._recorded:
            self._recorded.reset()

    def __call__(self, images: Tensor, labels: Tensor, progress: float) -> Tensor:
        """Take one step at `progress` in [0, 1) of the run; returns the batch's loss in double precision."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._config.optimizer, progress)
        with arithmetic(tf32=self._tf32):
            if self._recorded:
                loss = self._recorded(images, labels, progress)
            else:
                self._stepper.zero_grad()
                loss = self.gradients(images, labels, progress)
            if self._config.optimizer.clip:
                limit = self._config.optimizer.clip
                self._fabric.clip_gradients(self._parallel, self._stepper, max_norm=limit, error_if_nonfinite=False)
            self._stepper.step()
            if self._average is not None:
                self._average.update_parameters(self.model)
        return loss

    def gradients(self, images: Tensor, labels: Tensor, progress: float | Tensor) -> Tensor:
        """Compute loss and gradients. This is the part of a step that a CUDA graph records."""
        with self._orthogonalized():
            logits = self._parallel(images)
            pairwise = pairwise_constants(self.model[-1], logits.shape[1], logits)
            loss = self._config.loss(logits, labels, self._lipschitz, pairwise, progress)
            self._fabric.backward(loss)
        return loss.detach().double()

    @contextmanager
    def _orthogonalized(self) -> Iterator[None]:
        """Give each layer its operator. A CUDA graph records the grouped path, and sharing has its own collectives."""
        if self._sharing:
            self._sharing.distribute()
            yield
        elif self._grouping:
            self._grouping.prepare()
            yield
            self._grouping.release()
        else:
            with orthogonalized(self._parallel):
                yield

    def largest_singular_value(self) -> float | None:
        """Upper bound over all operators that training uses now; None if the layers are not grouped."""
        if self._grouping is None:
            return None
        with arithmetic(tf32=self._tf32):
            return self._grouping.largest_singular_value()

    def tensors(self) -> dict[str, Tensor]:
        """Weights, weight average, optimizer state and schedules, by their names in a checkpoint."""
        return {
            **add_prefix("weights", self.model.state_dict()),
            **add_prefix("average", {} if self._average is None else self.evaluated.state_dict()),
            **optimizer_tensors(self._optimizer, self.model),
            **add_prefix("schedules", {"lengths": self._grouping.lengths} if self._grouping else {}),
        }

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors()` returned, perhaps on another device."""
        self.model.load_state_dict(strip_prefix(tensors, "weights"))
        if self._average is not None:
            self.evaluated.load_state_dict(strip_prefix(tensors, "average"))
        restore_optimizer(self._optimizer, self.model, tensors)
        if self._grouping and "schedules.lengths" in tensors:  # a run may move from a CPU to a GPU
            self._grouping.restore(tensors["schedules.lengths"])


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """Make the exponential moving average of the weights, which starts at the current weights. Buffers are copied."""
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.n_averaged += 1  # without this, the first update would replace the initial weights
    return average


def group_layers(model: nn.Module, example: Tensor, fabric: Fabric) -> GroupedOrthogonalization | None:
    """Group the LOT layers to orthogonalize them together. Only on a single GPU; otherwise returns None.

    On a CPU each layer orthogonalizes its own kernel, so that the result does not depend on when kernels were measured.
    """
    if not on_one_gpu(fabric):
        return None
    grouping = GroupedOrthogonalization(model, example)
    return grouping if grouping.layers else None

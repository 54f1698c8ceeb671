"""Settings of a run: frozen dataclasses, the recipes that fill them, and the parser that checks both.

A setting is written once, as a field with its docstring: that is its default, its type, its place in a recipe and its
line in `--help`. `model` and `loss` come in kinds, the tables `MODELS` and `LOSSES`; the key `kind` chooses.
"""

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from lotnet.arguments import Parser, nearest
from lotnet.errors import InputError
from lotnet.losses import LOSSES, CrossEntropy, Loss
from lotnet.models import MODELS, LipConvnet, ModelConfig

FORMAT = 1
KINDS: dict[str, dict[str, Any]] = {"model": MODELS, "loss": LOSSES}


@dataclass(frozen=True)
class DataConfig:
    """Images to learn from."""

    name: str = "digits"
    """digits, cifar10, cifar100, tiny-imagenet, or folder:PATH."""
    root: str | None = None
    """Folder of prepared data sets; by default $LOTNET_DATA, else ~/.cache/lotnet."""
    side: int | None = None
    """Side that the images of a folder are resized to."""
    distort: bool = False
    """Change shape and colour of every second training image, besides cropping and mirroring: for long trainings."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Steps downhill."""

    name: Literal["sgd", "nadam"] = "sgd"
    """sgd with momentum, or nadam."""
    lr: float = 0.1
    """Largest learning rate."""
    momentum: float = 0.9
    """Momentum of sgd."""
    nesterov: bool = False
    """Nesterov's form of that momentum."""
    weight_decay: float = 0.0
    """Decay of all parameters; it does not change what LOT computes."""
    schedule: Literal["multistep", "onecycle", "constant"] = "multistep"
    """multistep: x 0.1 at half and three quarters of the training; onecycle: up, then down a cosine to zero."""
    warmup: float = 0.15
    """Part of the training in which onecycle rises; 0 is a plain cosine."""
    clip: float = 0.0
    """Largest norm of the gradient; 0 is no limit."""

    def __post_init__(self) -> None:
        _check(self.lr > 0, "optimizer.lr", "positive", self.lr)
        _check(0 <= self.warmup < 1, "optimizer.warmup", "at least 0 and below 1", self.warmup)
        _check(0 <= self.momentum < 1, "optimizer.momentum", "at least 0 and below 1", self.momentum)
        _check(self.weight_decay >= 0, "optimizer.weight_decay", "at least 0", self.weight_decay)
        _check(self.clip >= 0, "optimizer.clip", "at least 0", self.clip)


@dataclass(frozen=True)
class TrainerConfig:
    """How long, how exactly, and on how many processes."""

    epochs: int = 200
    """Passes over the training images."""
    batch_size: int = 256
    """Images in a step, over all processes together."""
    precision: Literal["tf32", "ieee", "double"] = "tf32"
    """Arithmetic of training steps; on a CPU tf32 is ieee. Evaluation never uses tf32."""
    ema: float = 0.0
    """Decay of an average of the weights that is evaluated and kept in their place; 0 is none."""
    radius: float = 36 / 255
    """The best checkpoint has the highest certified accuracy at this radius on the validation images."""
    cuda_graph: bool = True
    """On one GPU, record the training step as a CUDA graph and replay it."""
    share_polar: bool = False
    """Share out the orthogonalisation of the layers over the processes."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; 0 is none but at its end."""
    threads: int | None = None
    """Threads on a CPU, by default one a core. Small networks are faster with 1; the last bits depend on it."""
    devices: int = 1
    """Processes on this machine, each with its device; torchrun sets its own number."""
    nodes: int = 1
    """Machines; torchrun sets its own number."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "devices", "nodes"):
            _check(getattr(self, name) >= 1, f"trainer.{name}", "at least 1", getattr(self, name))
        _check(self.threads is None or self.threads >= 1, "trainer.threads", "at least 1", self.threads)
        _check(0 <= self.ema < 1, "trainer.ema", "at least 0 and below 1", self.ema)
        _check(self.radius >= 0, "trainer.radius", "at least 0", self.radius)
        _check(self.checkpoint_every >= 0, "trainer.checkpoint_every", "at least 0", self.checkpoint_every)


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a training run computes. Invariant: `RunConfig.load(config.save()) == config`."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=LipConvnet)
    loss: Loss = field(default_factory=CrossEntropy)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    seed: int = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        _check(self.limit is None or self.limit >= 1, "limit", "at least 1", self.limit)
        _check(self.seed >= 0, "seed", "at least 0", self.seed)

    def to_dict(self) -> dict[str, Any]:
        settings = dataclasses.asdict(self)
        for group, kinds in KINDS.items():
            kind = next(name for name, made in kinds.items() if made is type(getattr(self, group)))
            settings[group] = {"kind": kind, **settings[group]}
        return settings

    @staticmethod
    def from_dict(settings: dict[str, Any], source: str) -> "RunConfig":
        """Settings that are not given have their defaults; `source` is named where one is wrong."""
        settings = {key: value for key, value in settings.items() if key != "format"}
        parser = Parser(prog=source)
        add_settings(parser, kinds_in(settings, source))
        return from_namespace(parser.check(settings, source))

    def to_yaml(self) -> str:
        return yaml.safe_dump({"format": FORMAT, **self.to_dict()}, sort_keys=False)

    @staticmethod
    def from_yaml(text: str, source: str) -> "RunConfig":
        settings = read_yaml(text, source)
        if settings.get("format") != FORMAT:
            raise InputError(f"{source} has format {settings.get('format')}, this lotnet reads {FORMAT}: train again")
        return RunConfig.from_dict(settings, source)

    def fingerprint(self) -> str:
        """What ties checkpoints to their settings.

        Settings that have their default do not count: one that a later version adds must not part a run from its
        checkpoints.
        """
        given: dict[str, Any] = {"seed": self.seed, "limit": self.limit}
        for group in ("data", "model", "loss", "optimizer", "trainer"):
            settings = getattr(self, group)
            usual = dataclasses.asdict(type(settings)())
            changed = {key: value for key, value in dataclasses.asdict(settings).items() if value != usual[key]}
            given[group] = [type(settings).__name__, changed]
        return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


def add_settings(parser: Parser, kinds: dict[str, str]) -> None:
    """Every setting of a run as a dotted option."""
    parser.add_common("seed", "limit")
    parser.add_fields(DataConfig, "Data", "data")
    for group, table in KINDS.items():
        parser.add_argument(
            f"--{group}.kind",
            type=Literal[tuple(table)],
            default=kinds[group],
            help=f"What kind of {group}; it decides which settings --{group}.* there are.",
        )
        parser.add_fields(table[kinds[group]], f"{group.capitalize()} ({kinds[group]})", group)
    parser.add_fields(OptimizerConfig, "Optimizer", "optimizer")
    parser.add_fields(TrainerConfig, "Trainer", "trainer")


def from_namespace(parsed: Any) -> RunConfig:
    """The configuration that a parser with `add_settings` has read."""
    groups: dict[str, Any] = {"data": DataConfig, "optimizer": OptimizerConfig, "trainer": TrainerConfig}
    made = {name: make(**vars(parsed[name])) for name, make in groups.items()}
    for group, table in KINDS.items():
        settings = dict(vars(parsed[group]))
        make = table[settings.pop("kind")]
        try:
            made[group] = make(**settings)
        except ValueError as error:
            raise InputError(str(error)) from None
    return RunConfig(seed=parsed.seed, limit=parsed.limit, **made)


def kinds_in(settings: dict[str, Any], source: str) -> dict[str, str]:
    """The kind of model and of loss that settings ask for, or the default ones."""
    kinds = {}
    for group, default in (("model", "lipconvnet"), ("loss", "cross-entropy")):
        chosen = settings.get(group)
        kind = chosen.get("kind", default) if isinstance(chosen, dict) else default
        if kind not in KINDS[group]:
            raise InputError(f"{source} asks for an unknown {group}.kind {kind}{nearest(str(kind), KINDS[group])}")
        kinds[group] = kind
    return kinds


def recipes() -> list[str]:
    """Names of the packaged recipes, DATASET/SETTING."""
    folder = resources.files("lotnet") / "recipes"
    return sorted(
        f"{group.name}/{file.name.removesuffix('.yaml')}"
        for group in folder.iterdir()
        if group.is_dir()
        for file in group.iterdir()
        if file.name.endswith(".yaml")
    )


def read_recipe(name: str) -> dict[str, Any]:
    """The settings in a packaged recipe, or in a YAML file of that path."""
    if name in recipes():
        return read_yaml((resources.files("lotnet") / "recipes" / f"{name}.yaml").read_text(), name)
    if not name.endswith((".yaml", ".yml")):
        raise InputError(f"there is no recipe {name}{nearest(name, recipes())}")
    try:
        return read_yaml(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"cannot read {name} ({reason}): give a YAML file or one of {', '.join(recipes())}") from None


def read_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        settings = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" near line {where.line + 1}" if where else ""
        raise InputError(f"{source} is not valid YAML{line}: write `key: value` lines") from None
    if not isinstance(settings, dict):
        raise InputError(f"{source} holds no settings: write `key: value` lines")
    return settings


class _Loader(yaml.SafeLoader):
    """YAML 1.2's booleans and floats. Under 1.1 the key `on` is true, and 3e-3 is text."""


_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    _FLOAT, re.compile(r"(?:[-+]?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|[-+]?\.inf|\.nan)$"), list("-+.0123456789")
)


def _check(condition: bool, name: str, wanted: str, found: Any) -> None:
    if not condition:
        raise InputError(f"{name} must be {wanted}, not {found}")

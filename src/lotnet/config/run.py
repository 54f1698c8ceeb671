"""`RunConfig`: all settings of a run."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from lotnet.config.formats import FIRST_DEFAULTS, FORMAT, check_format, current_names, in_format_1
from lotnet.config.groups import DataConfig, OptimizerConfig, TrainerConfig, check
from lotnet.config.reader import field_types, read_value
from lotnet.config.recipes import recipe_settings
from lotnet.config.settings import KINDS, PresetName, Settings, kind_of
from lotnet.config.yaml_text import read_yaml
from lotnet.data import without_path
from lotnet.errors import InputError
from lotnet.files import without_folders
from lotnet.losses import CrossEntropy, Loss
from lotnet.models import LipConvnet, ModelConfig

_GROUPS = ("data", "model", "loss", "optimizer", "trainer")


@dataclass(frozen=True)
class RunConfig:
    """All settings that determine the result of a training run.

    Invariants: `RunConfig.from_yaml(config.to_yaml(), source) == config`; equal configurations have equal fingerprints,
    in this version and in every later one.
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=LipConvnet)
    loss: Loss = field(default_factory=CrossEntropy)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    seed: int = 0
    """Seed of all random numbers."""
    limit: int | None = None
    """Number of images used from each split; by default all."""
    preset: PresetName | None = None
    """The preset that chose network, batch size and epochs of a folder; they are stored, so it changes nothing more."""
    init: str | None = None
    """Model to start from: a run, a packed model, or a name that comes with lotnet. Its last layer is replaced."""

    def __post_init__(self) -> None:
        for group in _GROUPS:  # what a file or a command line gives was checked already, what Python code gives was not
            settings = getattr(self, group)
            for name, kind in field_types(type(settings), group).items():
                read_value(getattr(settings, name.rpartition(".")[2]), kind, name, type(settings).__name__)
        check(self.limit is None or self.limit >= 1, "limit", "at least 1", self.limit)
        check(self.seed >= 0, "seed", "at least 0", self.seed)

    @staticmethod
    def from_recipe(recipe: str | Path, overrides: Mapping[str, Any] | None = None) -> "RunConfig":
        """Read a packaged recipe or a YAML file, and change settings by their dotted names.

        >>> RunConfig.from_recipe("cifar10/creg-hh", {"model.depth": 20}).model.depth
        20
        """
        settings = recipe_settings(str(recipe))
        return RunConfig.from_settings(settings.override(overrides or {}, f"{recipe} with overrides"))

    @staticmethod
    def from_settings(settings: Settings) -> "RunConfig":
        top = {name: settings.values[name] for name in ("seed", "limit", "preset", "init") if name in settings.values}
        groups = settings.build()
        try:
            return RunConfig(**groups, **top)
        except InputError as error:
            raise InputError(f"{settings.source}: {error}") from None

    def override(self, overrides: Mapping[str, Any], source: str = "overrides") -> "RunConfig":
        """A copy of this configuration with some settings changed, each by its dotted name.

        If the kind of model or loss changes, the new kind takes over the settings that it also has and that were not at
        their defaults.

        >>> RunConfig().override({"trainer.epochs": 3, "loss.kind": "emma"}).loss
        EMMA(radius=0.4235294117647059, temperature=0.25)
        """
        values: dict[str, Any] = {"seed": self.seed, "limit": self.limit, "preset": self.preset, "init": self.init}
        values |= {f"{group}.kind": kind_of(getattr(self, group)) for group in KINDS}
        for group in _GROUPS:
            values |= {f"{group}.{name}": value for name, value in _changed(getattr(self, group)).items()}
        return RunConfig.from_settings(Settings(values, source).override(overrides, source))

    def to_dict(self) -> dict[str, Any]:
        settings = dataclasses.asdict(self)
        for group in KINDS:
            settings[group] = {"kind": kind_of(getattr(self, group)), **settings[group]}
        return settings

    def to_public_dict(self) -> dict[str, Any]:
        """`to_dict` for a file that others read: paths on this machine are cut to their last part."""
        settings = self.to_dict()
        settings["data"]["name"] = without_path(self.data.name)
        for group, name in ((settings["data"], "root"), (settings, "init")):
            group[name] = group[name] and without_folders(group[name])
        return settings

    @staticmethod
    def from_dict(settings: dict[str, Any], source: str) -> "RunConfig":
        """Read what `to_dict` of this version or an earlier one returned.

        Missing settings have their defaults. Error messages name `source`.
        """
        return RunConfig.from_settings(Settings.read(current_names(settings, source), source))

    def to_yaml(self) -> str:
        return yaml.safe_dump({"format": FORMAT, **self.to_dict()}, sort_keys=False)

    @staticmethod
    def from_yaml(text: str, source: str) -> "RunConfig":
        content = read_yaml(text, source)
        check_format(content, source, "open it with the version that wrote it, or train again")
        return RunConfig.from_dict(content, source)

    def fingerprint(self) -> str:
        """A hash that ties checkpoints to their settings.

        Settings at their first defaults are left out, so that runs keep their fingerprints when a later version adds a
        setting or changes a default. Renamed settings are hashed as in format 1, for the same reason.
        """
        given: dict[str, Any] = {"seed": self.seed, "limit": self.limit}
        given |= {} if self.init is None else {"init": self.init}
        for group in _GROUPS:
            settings = getattr(self, group)
            kind = type(settings).__name__
            differing = _changed(settings, FIRST_DEFAULTS.get(kind, {}))
            changed = dict(in_format_1(f"{group}.{name}", value) for name, value in differing.items())
            given[group] = [kind, {n.removeprefix(f"{group}."): v for n, v in changed.items()}]
        return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


def _changed(settings: Any, first_defaults: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The settings of a group that are not at their defaults; `first_defaults` replace the current ones."""
    usual = {**dataclasses.asdict(type(settings)()), **first_defaults}
    return {name: value for name, value in dataclasses.asdict(settings).items() if value != usual[name]}

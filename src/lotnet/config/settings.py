"""Settings by dotted name, from a recipe or a file, and overrides on top of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

from lotnet.config.formats import current_settings
from lotnet.config.groups import DataConfig, OptimizerConfig, TrainerConfig
from lotnet.config.reader import field_types, flatten, read_text, read_value, unknown_setting
from lotnet.errors import InputError
from lotnet.losses import LOSSES, Loss
from lotnet.models import MODELS, ModelConfig
from lotnet.spelling import nearest

T = TypeVar("T")

KINDS: dict[str, dict[str, Any]] = {"model": MODELS, "loss": LOSSES}
PresetName = Literal["auto", "small", "medium", "large"]
DEFAULT_KINDS = {"model": "lipconvnet", "loss": "cross-entropy"}


def kind_of(settings: ModelConfig | Loss) -> str:
    """The name of a kind of model or loss: the value of `model.kind` or `loss.kind`.

    >>> from lotnet.losses import CReg
    >>> kind_of(CReg())
    'creg'
    """
    return next(name for table in KINDS.values() for name, made in table.items() if made is type(settings))


def group_types(kinds: Mapping[str, str]) -> dict[str, type]:
    """The dataclass of each group of settings, given the kinds of model and loss."""
    chosen: dict[str, type] = {group: KINDS[group][kind] for group, kind in kinds.items()}
    return {"data": DataConfig, **chosen, "optimizer": OptimizerConfig, "trainer": TrainerConfig}


@dataclass(frozen=True)
class Settings:
    """Checked settings by dotted name. Settings that are not given have their defaults.

    Invariant: every name exists for the chosen kinds of model and loss, and every value has the type of its setting.
    """

    values: dict[str, Any]
    source: str
    """Where the settings come from, in words for error messages."""
    extra: type | None = None
    """A dataclass of additional settings at the top level, such as those of self-training."""

    @staticmethod
    def read(nested: dict[str, Any], source: str, extra: type | None = None) -> "Settings":
        """Check nested settings, as in a YAML file. They must have their current names."""
        kinds = {group: _kind_in(nested, group, source) for group in KINDS}
        known = Settings({f"{group}.kind": kind for group, kind in kinds.items()}, source, extra).known()
        flat = flatten(nested, known, source)
        values = {name: read_value(value, known[name], name, source) for name, value in flat.items()}
        settings = Settings(values, source, extra)
        settings.build()  # raises errors now, while the file that they are about is known
        return settings

    @property
    def kinds(self) -> dict[str, str]:
        return {group: self.values.get(f"{group}.kind", default) for group, default in DEFAULT_KINDS.items()}

    def known(self) -> dict[str, Any]:
        """The type of every setting that exists, by its dotted name."""
        known: dict[str, Any] = {} if self.extra is None else field_types(self.extra)
        known |= {"seed": int, "limit": int | None, "preset": PresetName | None, "init": str | None}
        for group, made in group_types(self.kinds).items():
            known |= {f"{group}.kind": str} if group in KINDS else {}
            known |= field_types(made, group)
        return known

    def with_kinds(self, overrides: Mapping[str, Any], source: str) -> "Settings":
        """Switch to the kinds of model and loss in the overrides. Settings that the new kinds lack are dropped."""
        names = (f"{group}.kind" for group in KINDS)
        chosen = {name: overrides[name] for name in names if overrides.get(name) is not None}
        for name, kind in chosen.items():
            _check_kind(name.removesuffix(".kind"), kind, source)
        moved = Settings(self.values | chosen, self.source, self.extra)
        known = moved.known()
        return Settings({name: value for name, value in moved.values.items() if name in known}, self.source, self.extra)

    def override(self, overrides: Mapping[str, Any], source: str) -> "Settings":
        """A copy of these settings with overrides, by dotted name.

        An override is a value of the setting's type, or a text that is parsed as on the command line. The name of a
        single entry of a dict is, for instance, `model.options.tolerance`.
        """
        overrides = current_settings(overrides, source)
        settings = self.with_kinds(overrides, source)
        known, values = settings.known(), dict(settings.values)
        for name, value in overrides.items():
            kind = type_of(name, known)
            if kind is None:
                raise unknown_setting(name, known, source)
            text = isinstance(value, str)
            typed = read_text(value, kind, name, source) if text else read_value(value, kind, name, source)
            if name in known:
                values[name] = typed
            else:
                group, _, key = name.rpartition(".")
                values[group] = {**values.get(group, {}), key: typed}
        return Settings(values, source if overrides else self.source, self.extra)

    def build(self) -> dict[str, Any]:
        """Make the dataclass of each group."""
        return {group: self.make(settings, group) for group, settings in group_types(self.kinds).items()}

    def make(self, settings: type[T], group: str = "") -> T:
        """Make the dataclass of one group, or of settings at the top level."""
        names = field_types(settings, group)
        given = {name.rpartition(".")[2]: self.values[name] for name in names if name in self.values}
        try:
            return settings(**given)
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from None


def type_of(name: str, known: Mapping[str, Any]) -> Any:
    """The type of a setting, or of an entry of a dict setting; None if there is no such setting."""
    if name in known:
        return known[name]
    kind = known.get(name.rpartition(".")[0])
    return get_args(kind)[1] if get_origin(kind) is dict else None


def _kind_in(nested: dict[str, Any], group: str, source: str) -> str:
    chosen = nested.get(group)
    kind = chosen.get("kind", DEFAULT_KINDS[group]) if isinstance(chosen, dict) else DEFAULT_KINDS[group]
    _check_kind(group, kind, source)
    return kind


def _check_kind(group: str, kind: Any, source: str) -> None:
    if not isinstance(kind, str) or kind not in KINDS[group]:
        raise InputError(f"{source} asks for an unknown {group}.kind {kind}{nearest(str(kind), KINDS[group])}")

"""Colors can be read on both kinds of page, and lines can be told apart without them."""

from itertools import combinations

import pytest

from lotnet.losses import LOSSES as KNOWN_LOSSES
from lotnet.palette import LOSSES, MEASURES, METHODS, SPARE, Style, styles
from lotnet.parametrizations import PARAMETRIZATIONS

PAGES = {"light": ("#ffffff", "#fcfbf9"), "dark": ("#131416", "#1b1d20")}
EVERY = [*METHODS.values(), *LOSSES.values(), *MEASURES.values(), *SPARE]


def luminance(color: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def lightness(color: str) -> float:
    """CIE lightness: what is left of a color in grey, from 0 to 100."""
    return 116 * luminance(color) ** (1 / 3) - 16


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("style", EVERY, ids=lambda style: style.light)
def test_every_color_is_readable_on_its_pages(style: Style) -> None:
    for scheme, pages in PAGES.items():
        assert all(contrast(getattr(style, scheme), page) >= 4.5 for page in pages)


def test_every_method_and_loss_has_a_color_of_its_own() -> None:
    assert METHODS.keys() == PARAMETRIZATIONS.keys() and LOSSES.keys() == KNOWN_LOSSES.keys()
    assert len({style.light for style in EVERY}) == len({style.dark for style in EVERY}) == len(EVERY)


def test_lines_are_told_apart_in_grey() -> None:
    for group in ([*METHODS.values(), *SPARE], LOSSES.values(), MEASURES.values()):
        assert len({style.dash for style in group}) == len({style.marker for style in group}) == len(group)
    for scheme in PAGES:
        for one, other in combinations([METHODS[name] for name in ("lot", "soc", "cayley", "bcop")], 2):
            assert abs(lightness(getattr(one, scheme)) - lightness(getattr(other, scheme))) > 7


def test_a_method_keeps_its_color_and_further_lines_have_their_own() -> None:
    assert styles([("soc", "emma"), ("lot", "creg")]) == [METHODS["soc"], METHODS["lot"]]
    assert styles([("lot", "emma"), ("lot", "creg")]) == [LOSSES["emma"], LOSSES["creg"]]
    assert styles([("lot", "creg")] * 3 + [("soc", "creg")]) == [METHODS["lot"], *SPARE[:2], METHODS["soc"]]
    assert styles([("mine", "creg")]) == [SPARE[0]]
    assert styles([]) == []

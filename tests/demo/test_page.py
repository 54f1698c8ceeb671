"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accessibility import serious
from lotnet.data import load
from lotnet.data.pictures import png
from lotnet.demo.server import LARGEST_UPLOAD, Server


@pytest.fixture
def tab(browser: Any, page: Server) -> Iterator[Any]:
    """Open the page; afterwards check that its console has no error and that it sent no request to another host."""
    complaints: list[str] = []
    requests: list[str] = []
    tab = browser.new_page()
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(page.address)
    tab.wait_for_selector("#verdict:not(.busy):not(:empty)")  # the first test image is shown at once
    yield tab
    tab.close()
    assert complaints == []
    assert {url for url in requests if not url.startswith(("data:", page.address))} == set()


@pytest.fixture
def digit(tmp_path: Path) -> Path:
    path = tmp_path / "digit.png"
    path.write_bytes(png(load("digits").test.images[0]))
    return path


def move(tab: Any, size: float) -> str:
    """Move the slider to `size` and return the text that the page then shows."""
    tab.evaluate(
        """size => { const slider = document.getElementById("size"); slider.step = "any"; slider.value = size;
                     slider.dispatchEvent(new Event("input", { bubbles: true })); }""",
        size,
    )
    tab.wait_for_selector("#verdict:not(.busy):not(:empty)")
    return tab.inner_text("#verdict")


def test_the_page_starts_with_a_test_image_and_says_which_pixels_its_radius_is_in(tab: Any) -> None:
    assert float(tab.inner_text("#radius")) > 0
    assert "Certified l2 radius, in the 8 × 8 grey pixels that the model reads, each from 0 to 1" in tab.inner_text(
        "dl"
    )
    assert "The radius is in the file's own pixels, 8 x 8 grey pixels." in tab.inner_text("#scope")
    assert tab.inner_text("#said").startswith("Predicted [digit ")


@pytest.mark.parametrize("width", [1280, 768, 375])
def test_axe_finds_nothing_serious_and_nothing_is_cut_off(tab: Any, width: int, digit: Path, tmp_path: Path) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    assert serious(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    if width < 1280:
        return
    right = [box["x"] + box["width"] for box in (place.bounding_box() for place in tab.locator(".box").all())]
    assert max(right) > 1200  # the page fills the window
    tab.evaluate("document.getElementById('size').max = 5")
    move(tab, 5.0)
    assert tab.locator("#verdict.fallen").count() == 1 and serious(tab) == []
    move(tab, 0.0)
    assert tab.locator("#verdict.proved").count() == 1 and serious(tab) == []
    large = tmp_path / "large.png"
    large.write_bytes(bytes(LARGEST_UPLOAD + 1))
    tab.set_input_files("#file", large)
    tab.wait_for_selector("#problem:not([hidden])")
    assert serious(tab) == []


def test_light_and_dark_can_be_chosen(tab: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(background)
    tab.get_by_role("button", name="Dark").click()
    assert tab.evaluate(background) != before


def test_upload_see_the_radius_and_attack(tab: Any, digit: Path) -> None:
    tab.set_input_files("#file", digit)
    tab.wait_for_selector("#answer:not([hidden])")
    label, radius = tab.inner_text("#label"), float(tab.inner_text("#radius"))
    assert label.startswith("[digit ") and radius > 0
    assert "No change of the pixels" in tab.inner_text("#meaning")
    assert tab.locator("#shares li").count() == 5
    for part in (0, 0.5, 0.99):
        assert f"Still {label}. This is proved" in move(tab, part * radius)
    tab.evaluate("document.getElementById('size').max = 5")
    assert f"instead of {label}" in move(tab, 5.0)
    assert tab.get_attribute("#after", "src") != tab.get_attribute("#before", "src")


def test_examples_and_the_slider_by_keyboard(tab: Any) -> None:
    before = tab.get_attribute("#preview", "src")
    tab.focus("#file")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('.examples') !== null")
    tab.keyboard.press("Enter")
    tab.wait_for_function("before => document.getElementById('preview').src !== before", arg=before)
    tab.wait_for_selector("#verdict:not(.busy):not(:empty)")
    tab.focus("#size")
    for _ in range(5):
        tab.keyboard.press("ArrowRight")
    assert float(tab.inner_text("#size-text")) > 0
    tab.wait_for_selector("#verdict.proved:not(.busy)")


def test_dropping_a_file(tab: Any, digit: Path) -> None:
    tab.evaluate(
        """bytes => { const data = new DataTransfer();
                      data.items.add(new File([new Uint8Array(bytes)], "digit.png"));
                      document.getElementById("drop").dispatchEvent(
                        new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })); }""",
        list(digit.read_bytes()),
    )
    tab.wait_for_selector("#answer:not([hidden])")
    assert tab.inner_text("#label").startswith("[digit ") and float(tab.inner_text("#radius")) > 0


def test_an_unreadable_file_gives_a_one_sentence_error(tab: Any, tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    large.write_bytes(bytes(LARGEST_UPLOAD + 1))
    tab.set_input_files("#file", large)
    tab.wait_for_selector("#problem:not([hidden])")
    assert tab.inner_text("#problem") == "The image is larger than 16 MB: scale it down first."
    assert tab.is_hidden("#answer")


def test_a_refused_file_clears_the_earlier_picture(tab: Any, digit: Path, tmp_path: Path) -> None:
    tab.set_input_files("#file", digit)
    tab.wait_for_selector("#preview:not([hidden])")
    large = tmp_path / "large.png"
    large.write_bytes(bytes(LARGEST_UPLOAD + 1))
    tab.set_input_files("#file", large)
    tab.wait_for_selector("#problem:not([hidden])")
    assert tab.is_hidden("#preview") and tab.is_visible("#invite") and tab.is_hidden("#attack-card")
    # The next picture starts with its own attack, without the result of an earlier one.
    tab.route("**/attack*", lambda route: None)
    tab.set_input_files("#file", digit)
    tab.wait_for_selector("#preview:not([hidden])")
    assert tab.inner_text("#verdict") == "Attacking ..." and tab.get_attribute("#after", "src") is None
    tab.unroute_all(behavior="ignoreErrors")

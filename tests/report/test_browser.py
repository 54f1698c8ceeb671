"""The report in a real browser, opened from a file."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up_runs import NAMES, add_attacks, certified_share, made_up_data, made_up_run, read

from accessibility import serious
from lotnet.report import collect, render

HOSTILE = "<img src=x onerror=alert(1)>"


class Made:
    """Two runs on the same 10,000 noise images of CIFAR's size, and their page."""

    def __init__(self, folder: Path) -> None:
        test = made_up_data(folder / "data", images=10_000, side=32)
        settings = {"model": {"kind": "lipconvnet", "activation": "hh1"}, "loss": {"kind": "creg"}}
        self.runs = [
            made_up_run(folder / HOSTILE, test.labels, **settings),
            made_up_run(
                folder / "second", test.labels, seed=1, scale=0.6, model={"kind": "lipconvnet", "channels": 64}
            ),
        ]
        right = [i for i in read(self.runs[0])["images"] if i["prediction"] == i["label"]]
        add_attacks(self.runs[0], test, [i["index"] for i in right[:5]])
        self.page, self.one = folder / "report.html", folder / "one.html"
        self.page.write_text(render(collect(self.runs), test, 36 / 255))
        self.one.write_text(render(collect(self.runs[1:]), test, 36 / 255))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("report"))


@pytest.fixture
def page(browser, made: Made) -> Iterator:
    """A wide window with the page open. Every test also checks that it logs no error and makes no request."""
    yield from opened(browser, made, width=1200)


@pytest.fixture
def phone(browser, made: Made) -> Iterator:
    yield from opened(browser, made, width=390)


def opened(browser, made: Made, width: int) -> Iterator:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme="light")
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.on("request", lambda request: trouble.append(request.url[:80]) if foreign(request.url, made) else None)
    page.set_default_timeout(5000)
    page.goto(made.page.as_uri())
    yield page
    page.close()
    assert trouble == []


def foreign(url: str, made: Made) -> bool:
    return not url.startswith("data:") and url.split("#")[0] != made.page.as_uri()


def shares(page) -> list[str]:
    return page.locator("[data-certified]").all_inner_texts()


def expected(made: Made, radius: float) -> list[str]:
    return [f"{certified_share(run, radius):.2%}" for run in made.runs]


def visible_cards(page):
    return page.locator(".card:visible")


def test_the_slider_moves_every_number(page, made: Made) -> None:
    assert shares(page) == expected(made, 36 / 255)  # where both runs have a tie
    for steps in (0, 36, 100, 211):
        page.locator("#radius").fill(str(steps))
        assert shares(page) == expected(made, steps / 255)
        name = f"{steps}/255" if steps else "0"
        assert page.locator("#radius-text").inner_text() == f"{name} = {steps / 255:.4f}"
        assert page.locator("#classes h2").inner_text() == f"Classes at {name}"
        for label in (0, 9):
            share = f"{100 * certified_share(made.runs[1], steps / 255, label):.1f}%"
            assert page.locator(f'[data-class="1-{label}"]').inner_text() == share
    page.locator("#said", has_text="Certified at 211/255: ").wait_for(state="attached")  # when the slider stops
    page.get_by_role("button", name="72/255").click()
    assert shares(page) == expected(made, 72 / 255)


def test_the_curve_is_read_and_set_with_the_pointer(page, made: Made) -> None:
    area = page.locator("[data-chart=curve] .area")
    area.hover(position={"x": 200, "y": 50})
    title, *rows = page.locator("[data-chart=curve] .readout").inner_text().split("\n")
    steps = int(title.split("/")[0])
    assert [share for share in rows if share.endswith("%")] == expected(made, steps / 255)
    area.click(position={"x": 200, "y": 50})
    assert page.locator("#radius").input_value() == str(steps)
    page.locator("[data-chart=loss] .area").hover(position={"x": 1, "y": 50})
    assert "epoch 1" in page.locator("[data-chart=loss] .readout").inner_text()


def test_the_gallery_starts_with_every_class_and_then_mistakes(page, made: Made) -> None:
    assert page.locator(".shelf:visible").count() == 2
    first, second = (shelf.locator(".card:visible") for shelf in page.locator(".shelf:visible").all())
    assert [card.get_attribute("data-label") for card in first.all()] == [str(n) for n in range(10)]
    right = [i for i in read(made.runs[0])["images"] if i["prediction"] == i["label"] == 3]
    radii = sorted(i["radius_float"] for i in right)
    assert f"radius {radii[len(radii) // 2]:.4f}"[:12] in first.nth(3).inner_text()
    assert second.count() == 10 and all("is " in text for text in second.all_inner_texts())


def test_the_gallery_is_filtered_by_kind_class_and_run(page, made: Made) -> None:
    page.get_by_text("Attacked", exact=True).click()
    assert visible_cards(page).count() == 5 and visible_cards(page).first.locator("img").count() == 2
    for width in (1280, 375):  # an attacked image and the neighbour beside it are as large as the other images
        page.set_viewport_size({"width": width, "height": 800})
        pair = visible_cards(page).first.locator("img").first.bounding_box()["width"]
        page.get_by_text("Most robust", exact=True).click()
        widths = [image.bounding_box()["width"] for image in visible_cards(page).locator("img").all()]
        assert len(widths) == 10 and max(*widths, pair) < 1.2 * min(*widths, pair)
        page.get_by_text("Attacked", exact=True).click()
    page.locator("select[name=run]").select_option("second")
    assert visible_cards(page).count() == 0
    assert page.get_by_text("No image of this kind and class is on this page.").locator("visible=true").count() == 1
    assert page.locator("#found").inner_text() == "0 images shown."
    for label, name in ((3, "cat"), (8, "ship")):
        page.locator("select[name=label]").select_option(name)
        page.get_by_text("Mistakes", exact=True).first.click()
        assert {card.get_attribute("data-label") for card in visible_cards(page).all()} == {str(label)}
        assert all(f"is {NAMES[label]}" in text for text in visible_cards(page).all_inner_texts())
    page.locator("select[name=label]").select_option("All")
    page.get_by_text("Least robust", exact=True).click()
    images = [i for i in read(made.runs[1])["images"] if i["prediction"] == i["label"]]
    least = min(i["radius_float"] for i in images)
    assert f"radius {least:.4f}"[:12] in visible_cards(page).first.inner_text()
    assert page.evaluate("[...document.images].every((image) => image.alt && image.complete && image.naturalWidth)")


def test_the_confusion_matrix_follows_the_radius(page, made: Made) -> None:
    images = [i for i in read(made.runs[1])["images"] if i["label"] == 4]
    for steps in (36, 0, 150):
        page.locator("#radius").fill(str(steps))
        held = [i["prediction"] for i in images if i["radius_float"] > steps / 255]
        counts = [int(page.locator(f'[data-cell="1-4-{n}"]').inner_text()) for n in range(10)]
        assert counts == [held.count(n) for n in range(10)]
        assert int(page.locator('[data-rest="1-4"]').inner_text()) == len(images) - len(held)


def test_many_classes_have_a_table_of_mistakes(browser, made: Made, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made.runs[1], tmp_path / "run"))
    environment = read(run, "environment.json")
    environment["classes"] = [*NAMES, *(f"class {n}" for n in range(10, 30))]
    (run / "environment.json").write_text(json.dumps(environment))
    (tmp_path / "page.html").write_text(render(collect([run]), None, 36 / 255))
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.get_by_text("Most frequent mistakes", exact=True).click()
    mistakes = Counter((i["label"], i["prediction"]) for i in read(run)["images"] if i["label"] != i["prediction"])
    (label, predicted), count = mistakes.most_common(1)[0]
    assert page.locator("#classes details tbody tr").first.locator("th, td").all_inner_texts()[:3] == [
        NAMES[label],
        NAMES[predicted],
        str(count),
    ]
    for steps in (36, 100):
        page.locator("#radius").fill(str(steps))
        wrong = [i for i in read(run)["images"] if (i["label"], i["prediction"]) == (label, predicted)]
        held = sum(i["radius_float"] > steps / 255 for i in wrong)
        assert page.locator(f'[data-cell="0-{label}-{predicted}"]').inner_text() == str(held)
        assert page.locator('[data-class="0-29"]').inner_text() == "–"  # a class without certified images
    page.close()


@pytest.mark.parametrize("number", ["one", "two"])
def test_headline_and_curve_are_on_the_first_screen(browser, made: Made, number: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((made.one if number == "one" else made.page).as_uri())
    for part in ("[data-certified]", "#curve .area", "#curve .x-title", "#curve figcaption", "#radius", ".terms"):
        for box in (place.bounding_box() for place in page.locator(part).all()):
            assert box["y"] >= 0 and box["y"] + box["height"] <= 800, part
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    page.close()


@pytest.mark.parametrize("width", [1280, 768, 375])
def test_axe_finds_nothing_serious(browser, made: Made, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(made.one.as_uri() if width == 768 else made.page.as_uri())
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


def test_two_runs_are_compared_and_their_names_are_escaped(page) -> None:
    headings = page.locator(".run-name").all_inner_texts()
    assert headings == [HOSTILE, "second"]
    assert page.locator("[data-chart=curve] path.line").count() == 2 + 2  # and in the legend
    strokes = [page.locator(f"#curve svg path.line.s{n}").evaluate("e => getComputedStyle(e).stroke") for n in (0, 1)]
    assert strokes[0] != strokes[1]
    assert page.locator("#numbers tr.paper").count() == 1
    assert page.locator("#classes tbody").first.locator("tr").count() == 2


def test_dark_mode_follows_the_system_and_the_button(page) -> None:
    def background() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert light != dark
    toggle = page.get_by_role("button", name="Dark")
    assert toggle.get_attribute("aria-pressed") == "true"
    toggle.click()
    assert background() == light and toggle.get_attribute("aria-pressed") == "false"
    page.emulate_media(color_scheme="light")
    toggle.click()
    assert background() == dark


def test_everything_is_reachable_with_the_keyboard(page, made: Made) -> None:
    reached = []
    while "run" not in reached and "body" not in reached:
        page.keyboard.press("Tab")
        about = page.evaluate(
            "(() => { const e = document.activeElement; return [e.id || e.name || e.className || e.localName,"
            " getComputedStyle(e).outlineStyle, getComputedStyle(e.nextElementSibling ?? e).outlineStyle] })()"
        )
        reached.append(about[0])
        assert about[1] != "none" or about[2] != "none", f"{about[0]} does not show that it has the focus"
        if about[0] == "radius":
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowRight")
            assert shares(page) == expected(made, 38 / 255)
        if about[0] == "kind":
            page.keyboard.press("ArrowRight")
            assert page.locator(".shelf:visible h3").all_inner_texts() == [f"Mistakes, {HOSTILE}"]
    assert {"skip", "theme", "radius", "kind", "label", "run", "scroll"} <= set(reached)


def test_a_phone_shows_the_page_without_scrolling_sideways(phone, made: Made) -> None:
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    phone.get_by_text("Attacked", exact=True).click()
    for details in phone.locator("summary").all():
        details.click()
    assert phone.evaluate("document.documentElement.scrollWidth") == 390


def test_ten_thousand_certificates_fit_in_three_megabytes(made: Made) -> None:
    assert made.page.stat().st_size < 3_000_000


def test_the_page_is_readable_without_javascript(browser, made: Made) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(made.page.as_uri())
    assert page.locator("[data-certified]").all_inner_texts() == expected(made, 36 / 255)
    assert page.locator("#radius").is_hidden() and page.locator("#filters").is_hidden()
    assert page.locator(".shelf:visible").count() == 2 * 5
    context.close()

"""Draw the pictures of docs/own-images.md with Chromium, from the run of `benchmarks/own_images.py clothes`.

    python benchmarks/own_pictures.py runs/own/clothes [--to docs/images]

They show the first screen of the report, its part about classes, and the demo page with a test image.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

_WIDTH = 1000


def report(browser: Browser, run: Path, to: Path) -> None:
    subprocess.run([sys.executable, "-m", "lotnet", "report", run], check=True)
    page = _opened(browser, (run / "report.html").resolve().as_uri(), height=900)
    page.screenshot(path=to / "own-report.png")
    page.locator("#classes details").first.evaluate("box => { box.open = true }")
    page.locator("#control").evaluate("bar => { bar.style.position = 'static' }")  # it would cover the heading
    page.locator("#classes").screenshot(path=to / "own-classes.png")


def demo(browser: Browser, run: Path, to: Path) -> None:
    with _served(run) as address:
        page = _opened(browser, address, height=850)
        page.locator("#examples button").nth(2).click()
        page.locator("#answer").wait_for()
        page.locator("#verdict").wait_for()
        page.screenshot(path=to / "own-demo.png")


def _opened(browser: Browser, address: str, height: int) -> Page:
    page = browser.new_page(viewport={"width": _WIDTH, "height": height}, color_scheme="light")
    page.goto(address)
    return page


@contextmanager
def _served(run: Path) -> Iterator[str]:
    """The address of the demo page of a run."""
    command = [sys.executable, "-m", "lotnet", "demo", str(run), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        line = next(line for line in server.stdout if line.startswith("Open "))
        yield line.split()[1]
        server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        report(browser, options.run, options.to)
        demo(browser, options.run, options.to)
        browser.close()


if __name__ == "__main__":
    main()

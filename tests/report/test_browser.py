"""The report in a real browser: it draws, and nobody has anything to complain about."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from simgrad.report import write_report
from tests.axe import needs_axe, violations
from tests.browsing import chromium, complaints, needs_browser, window

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture(scope="module")
def address(study: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    return write_report([study], folder / "report.html", batches=1).as_uri()


def test_the_browser_draws_it_without_complaint(browser: Any, address: str) -> None:
    with window(browser, 900, 6000):
        browser.get(address)
        found = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    assert complaints(browser) == []
    picture = Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")
    # Text alone would be greys; charts and pictures bring colours, down to the last part.
    colourful = np.ptp(np.asarray(picture).astype(int), axis=2) > 60
    assert colourful[:1000].sum() > 500
    assert colourful[3000:].sum() > 5000


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(browser: Any, address: str, width: int) -> None:
    with window(browser, width):
        browser.get(address)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_word_can_be_asked_for_its_meaning(browser: Any, address: str) -> None:
    browser.get(address)
    word = browser.find_element("css selector", ".lead .term")
    word.click()
    meaning = browser.find_element("id", word.get_attribute("popovertarget"))
    assert meaning.is_displayed()
    assert word.text in meaning.text


@needs_axe
@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_read_it(browser: Any, address: str, dark: bool) -> None:
    assert violations(browser, address, dark) == []

"""The pages in a real browser; see tests/browsing.py for what that needs."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgrad.retriever.search import Searcher
from tests.axe import needs_axe, violations
from tests.browsing import chromium, complaints, needs_browser, window

pytestmark = needs_browser
PAGES = [
    "/",
    "/studies/both",
    "/runs/nt",
    "/runs/both.nt-xent-s0/false-negatives",
    "/search?q=heart&run=nt",
    "/bench",
    "/api",
    "/none",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture(autouse=True)
def quiet_console(browser: Any) -> Iterator[None]:
    complaints(browser)  # what an earlier test left
    yield
    assert [line for line in complaints(browser) if "/none" not in line] == []


def one(browser: Any, css: str) -> Any:
    return browser.find_element("css selector", css)


def until(browser: Any, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 15).until(lambda b: b.execute_script(f"return {script}"))


def test_a_sentence_typed_in_finds_the_picture(
    browser: Any, server: str, easy: tuple[str, int]
) -> None:
    caption, row = easy
    browser.get(f"{server}/search")
    one(browser, "#q").send_keys(caption)
    one(browser, ".ask button").click()
    first = one(browser, '[data-run="nt"] .tile img')
    assert first.get_attribute("src").endswith(f"/pictures/nt/test/{row}")
    assert "fits" in one(browser, '[data-run="nt"] .tile').text
    assert one(browser, '[data-run="tri"] .tile').is_displayed()  # side by side
    until(browser, "document.querySelector('.tile img').naturalWidth === 64")


def test_an_uploaded_picture_finds_its_captions(
    browser: Any, server: str, searcher: Searcher, tmp_path: Path
) -> None:
    assert searcher.split is not None
    assert searcher.split.pictures is not None
    row = next(r for r in range(60) if searcher.row(r, 1).captions[0].right)
    searcher.split.pictures.picture(row).save(tmp_path / "mine.png")
    browser.get(f"{server}/search?run=nt")
    one(browser, "#picture").send_keys(str(tmp_path / "mine.png"))
    best = one(browser, ".captions li.fits .caption")
    assert searcher.row(row, 1).captions[0].captions[0] in best.text
    assert "mine.png" in one(browser, ".asked").text


def test_the_diagram_changes_when_a_slider_moves(browser: Any, server: str) -> None:
    pixels = "document.querySelector('#triplet svg').outerHTML"
    weights = "document.querySelector('#weights').toDataURL()"
    browser.get(f"{server}/bench")
    one(browser, "#objective").send_keys("nt-xent")
    until(browser, "document.getElementById('spec').textContent === 'nt-xent'")
    before = browser.execute_script(f"return [{pixels}, {weights}]")
    slider = one(browser, "#p-tau")
    slider.send_keys("\ue014" * 5)  # right arrow
    until(browser, "document.getElementById('spec').textContent.includes('tau=0.15')")
    after = browser.execute_script(f"return [{pixels}, {weights}]")
    assert before[0] != after[0]
    assert before[1] != after[1]
    one(browser, "#objective").send_keys("goal")
    until(browser, "document.getElementById('spec').textContent.startsWith('goal')")
    assert one(browser, "#p-lambda").is_displayed()
    assert one(browser, "#pair img").get_attribute("alt").startswith("scene")


def test_drawings_can_be_pointed_at(browser: Any, server: str) -> None:
    from selenium.webdriver import ActionChains

    browser.get(f"{server}/runs/nt")
    for kind, said in (("lines", "rsum:"), ("source", "push")):
        drawing = one(browser, f"svg[data-{kind}]")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", drawing)
        found = ""
        for shift in range(0, 60, 4):  # a diagram fetches its values when it is first pointed at
            ActionChains(browser).move_to_element_with_offset(drawing, shift, 4).pause(
                0.1
            ).perform()
            found = one(browser, f"figure:has(svg[data-{kind}]) .tip").text
            if said in found:
                break
        assert said in found


def test_a_word_can_be_asked_for_its_meaning(browser: Any, server: str) -> None:
    browser.get(f"{server}/runs/nt")
    word = one(browser, ".facts .term")
    word.click()
    meaning = one(browser, f"#{word.get_attribute('popovertarget')}")
    assert meaning.is_displayed()
    assert "sum of" in meaning.text


@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(browser: Any, server: str, address: str, width: int) -> None:
    with window(browser, width):
        browser.get(server + address)
        needed = "return document.documentElement.scrollWidth"
        for _ in range(50):  # a busy machine lays a page out a moment after its window has changed
            if browser.execute_script(needed) <= width:
                break
            time.sleep(0.1)
        assert browser.execute_script(needed) <= width


@needs_axe
@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_use_it(browser: Any, server: str, address: str, dark: bool) -> None:
    assert violations(browser, server + address, dark) == []

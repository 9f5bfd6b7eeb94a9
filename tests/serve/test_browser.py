"""The pages in a real browser.

Needs Debian's Chromium and its driver, and Selenium:
    apt-get install chromium chromium-driver && pip install selenium
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgrad.serve.search import Searcher

webdriver: Any = pytest.importorskip(
    "selenium.webdriver", reason="needs Selenium: pip install selenium"
)
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs a browser: apt-get install chromium chromium-driver",
)
OPTIONS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--headless",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    made = webdriver.Chrome(options=options, service=service)
    made.implicitly_wait(5)
    yield made
    made.quit()


@pytest.fixture(autouse=True)
def quiet_console(browser: Any) -> Iterator[None]:
    browser.get_log("browser")  # what an earlier test left
    yield
    assert [entry["message"] for entry in browser.get_log("browser")] == []


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


@pytest.mark.parametrize("address", ["/", "/runs/nt", "/search?q=heart", "/bench", "/api"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(browser: Any, server: str, address: str, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(server + address)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= width

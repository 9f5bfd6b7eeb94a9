"""The yes/no page: answers are kept at once, by click and by key, and survive a kill."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from simgrad.data.found import (
    ANSWERS,
    add_answer,
    read_found,
)
from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab
from tests.browsing import chromium, complaints, needs_browser
from tests.lab.conftest import with_questions


@pytest.fixture
def asked(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a run with pairs to judge."""
    return with_questions(runs["nt"], tmp_path / "asked")


@pytest.fixture
def page(asked: Path) -> Iterator[TestClient]:
    lab = Lab([asked])
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as client:
        yield client
    lab.close()


ADDRESS = "/runs/asked/false-negatives"


def test_answers_are_kept_and_the_next_pair_is_shown(page: TestClient, asked: Path) -> None:
    pairs = read_found(asked / "false-negatives")
    assert "5 pairs to judge" in page.get("/runs/asked").text
    shown = page.get(ADDRESS).text
    assert pairs[0].text in shown
    form = {"image": pairs[0].image, "caption": pairs[0].caption, "said": "yes"}
    after = page.post(ADDRESS, data=form).text  # and the page it leads to
    assert pairs[1].text in after
    assert "1 of 5 pairs answered" in after
    assert read_found(asked / "false-negatives")[0].answer == "yes"
    page.post(ADDRESS, data={**form, "said": "no"})  # one may think again
    assert read_found(asked / "false-negatives")[0].answer == "no"
    assert "answered" in page.get(ADDRESS, params={"place": 0}).text
    for pair in pairs[1:]:
        page.post(ADDRESS, data={"image": pair.image, "caption": pair.caption, "said": "unsure"})
    assert "All pairs are answered" in page.get(ADDRESS).text


def test_what_does_not_fit_is_refused(page: TestClient, asked: Path) -> None:
    pairs = read_found(asked / "false-negatives")
    form = {"image": pairs[0].image, "caption": pairs[0].caption, "said": "maybe"}
    assert page.post(ADDRESS, data=form).status_code == 422
    assert page.post(ADDRESS, data={**form, "image": "x", "said": "yes"}).status_code == 404
    assert page.get(ADDRESS, params={"place": 99}).status_code == 404
    other = {"origin": "http://elsewhere.example"}
    assert page.post(ADDRESS, data={**form, "said": "no"}, headers=other).status_code == 403
    assert not (asked / "false-negatives" / ANSWERS).exists()
    shutil.rmtree(asked / "false-negatives")
    assert page.get(ADDRESS).status_code == 404


def test_a_kill_in_the_middle_of_an_answer_costs_that_one_alone(tmp_path: Path) -> None:
    add_answer(tmp_path, "a", "b", "yes")
    whole = (tmp_path / ANSWERS).read_bytes()
    add_answer(tmp_path, "c", "d", "no")
    line = (tmp_path / ANSWERS).read_bytes()[len(whole) :]
    for length in range(len(line)):  # cut at every byte
        (tmp_path / ANSWERS).write_bytes(whole + line[:length])
        assert [(p.image, p.answer) for p in read_found(tmp_path)] == [("a", "yes")]
        add_answer(tmp_path, "e", "f", "unsure")
        assert [p.image for p in read_found(tmp_path)] == ["a", "e"]


@needs_browser
def test_by_keyboard_in_a_browser(asked: Path, tmp_path: Path) -> None:
    import threading

    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    from simgrad.lab.server import listen
    from simgrad.lab.server import server as server_for

    lab = Lab([asked])
    listening = listen("127.0.0.1", 0)
    running = server_for(create_app(lab), timeout_graceful_shutdown=1)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}{ADDRESS}"

    def answers() -> list[str | None]:
        return [pair.answer for pair in read_found(asked / "false-negatives")]

    def press(browser: Any, key: str, wanted: str) -> None:
        browser.find_element("css selector", "body").send_keys(key)
        WebDriverWait(browser, 15).until(
            lambda b: wanted in b.find_element("css selector", "#main").text
        )

    try:
        with chromium(tmp_path / "chromium") as browser:
            browser.get(address)
            WebDriverWait(browser, 15).until(
                lambda b: b.execute_script(
                    "const i = document.querySelector('.asking img');"
                    "return i && i.naturalWidth > 0 && document.readyState === 'complete'"
                )
            )
            press(browser, "y", "1 of 5 pairs answered")
            press(browser, "n", "2 of 5 pairs answered")
            press(browser, "u", "3 of 5 pairs answered")
            press(browser, Keys.ARROW_LEFT, "answered unsure")
            assert answers() == ["yes", "no", "unsure", None, None]
            browser.find_element("css selector", "button[value=yes]").click()
            WebDriverWait(browser, 15).until(lambda _: answers()[2] == "yes")
            assert complaints(browser) == []
    finally:
        running.should_exit = True
        thread.join(10)
        lab.close()

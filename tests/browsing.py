"""A real browser for tests.

Needs Debian's Chromium and its driver, and Selenium:
    apt-get install chromium chromium-driver && pip install selenium
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None or find_spec("selenium") is None,
    reason="needs a browser: apt-get install chromium chromium-driver; pip install selenium",
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
    "--hide-scrollbars",
    "--window-size=1280,900",
)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser without a window, with a profile of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options, webdriver.ChromeService(executable_path=DRIVER))
    made.implicitly_wait(5)
    try:
        yield made
    finally:
        made.quit()


def complaints(browser: Any) -> list[str]:
    """What the browser has written to its console since it was last asked."""
    return [entry["message"] for entry in browser.get_log("browser")]


@contextmanager
def window(browser: Any, width: int, height: int = 800) -> Iterator[None]:
    """The browser as wide as this; below 500 as a phone."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

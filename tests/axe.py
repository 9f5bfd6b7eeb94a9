"""axe-core on a page in a browser: what keeps people from using it.

`npm install axe-core` anywhere, and give the path of its axe.min.js as SIMGRAD_AXE.
"""

import os
from pathlib import Path
from typing import Any

import pytest

AXE = os.environ.get("SIMGRAD_AXE")
needs_axe = pytest.mark.skipif(AXE is None, reason="needs axe-core: SIMGRAD_AXE=.../axe.min.js")


def violations(browser: Any, address: str, dark: bool) -> list[str]:
    """What axe finds wrong with a page, with the first place of each."""
    assert AXE is not None
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.get(address)
    browser.execute_script(Path(AXE).read_text(encoding="utf-8"))
    browser.set_script_timeout(60)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then((result) => done(result.violations));"
    )
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    return [f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}" for each in found]

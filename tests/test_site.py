"""The pages that `make docs` makes from the code, without building the site."""

import contextlib
import csv
import importlib
import io
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import simgrad
from simgrad.cli.program import COMMANDS
from simgrad.objectives import objectives
from tests.axe import needs_axe, violations
from tests.browsing import chromium, needs_browser, window
from tests.test_words import TYPED

ROOT = Path(__file__).parents[1]
BUILDER = ROOT / "docs" / "builder"


@pytest.fixture(scope="module", autouse=True)
def builder() -> Iterator[None]:
    """The builder's files can be imported, as MkDocs does it."""
    pytest.importorskip("latex2mathml", reason="the extra docs is missing")
    sys.path.insert(0, str(BUILDER))
    yield
    sys.path.remove(str(BUILDER))


def module(name: str) -> Any:
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def pages(builder: None) -> dict[str, str]:
    return dict(module("objective_pages").pages())


OWN = [entry.name for entry in objectives if entry.paper != "your own"]


@pytest.mark.parametrize("name", OWN)
def test_an_objective_has_a_page(name: str, pages: dict[str, str]) -> None:
    text, entry = pages[f"objectives/{name}.md"], objectives[name]
    assert entry.paper in text
    assert text.count("<svg") == 2
    assert "<math" in text
    for parameter in entry.parameters:
        assert f"| {parameter.name} |" in text


@pytest.mark.parametrize("name", OWN)
def test_its_example_prints_what_the_page_says(name: str, pages: dict[str, str]) -> None:
    blocks = re.findall(r"```(python|text)\n(.*?)```", pages[f"objectives/{name}.md"], re.DOTALL)
    (_, code), (_, printed) = blocks
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == printed


def test_drawn_weights_are_the_objectives_own() -> None:
    """triplet pushes a negative before it is the hardest, triplet-sh does not."""
    weights = module("drawings").weights
    near = 56  # of 160: at 0.35, within the margin, below the other negative
    assert weights("triplet")[near].tolist() == [-2, 1, 1]
    assert weights("triplet-sh")[near].tolist() == [-1, 0, 1]


def test_published_and_our_numbers_find_their_objective(pages: dict[str, str]) -> None:
    numbers = module("known_numbers")
    bleeker = [n for n in numbers.published() if "bleeker-table1" in n.source]
    found = {str(n.objective): n.cells["i2t_r1"] for n in bleeker if n.data == "flickr30k-1k"}
    assert found.keys() == {"triplet", "triplet-sh", "nt-xent", "smooth-ap"}
    assert "30.8 ± 0.7" in pages["objectives/triplet.md"]  # table 1 of the paper
    places = {re.search(r"\(\.\./(.*)\)", n.source)[1] for n in numbers.ours()}  # type: ignore[index]  # each has a link
    assert all((ROOT / place).is_file() for place in places)
    assert all(place.startswith("results/flickr8k/") for place in places)  # as the page says
    tuned = {str(n.objective) for n in numbers.ours() if "same budget" in n.source}
    assert tuned >= {"triplet", "triplet-sh", "nt-xent", "smooth-ap", "focused-deviance"}
    with (ROOT / "results/flickr8k/study/table.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["label"] == "nt-xent"]
    (rsum,) = [float(row["mean"]) for row in rows if row["metric"] == "rsum"]
    assert f"| {rsum:.1f} ± " in pages["objectives/nt-xent.md"]


def test_every_public_name_and_command_is_there() -> None:
    reference, commands = module("reference_pages").pages(), module("command_page").page()
    for name in simgrad.__all__:
        assert f"[simgrad.{name}]" in reference["reference/index.md"]
    for name in COMMANDS:
        assert f"## simgrad {name}\n" in commands
    assert "--absolute-margin X" in commands


def test_pages_are_files_before_a_builder_begins(tmp_path: Path) -> None:
    module("pages").write(tmp_path)
    pages = tmp_path / "pages"
    assert (pages / "readme.md").read_text(encoding="utf-8").startswith("# simgrad")
    assert "boost: 0.3" in (pages / "results/flickr8k/README.md").read_text(encoding="utf-8")
    assert (pages / "objectives" / "goal.md").is_file()
    for page in pages.rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:\s]+\.md)", text):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"


def test_links_are_turned() -> None:
    relink = module("repository").relink
    known = {"results/a/README.md", "contribute.md", "data.md"}
    turned = relink("[r](../results/a/README.md#x) [d](data.md)", Path("choose.md"), known)
    assert turned == "[r](results/a/README.md#x) [d](data.md)"
    assert relink("[d](docs/data.md)", Path("contribute.md"), known) == "[d](data.md)"
    assert relink("[code](../src/simgrad/core)", Path("data.md"), known) == "code"
    assert relink("[gone](nowhere.md)", Path("data.md"), known) == "[gone](nowhere.md)"
    assert relink("```\n[x](../README.md)\n```", Path("data.md"), known).count("../README.md") == 1


def test_every_page_has_a_title() -> None:
    with_title = module("repository").with_title
    assert with_title("### A study\n\n#### More\n\n```\n### code\n```\n") == (
        "# A study\n\n## More\n\n```\n### code\n```\n"
    )
    assert with_title("# A page\n\n### Deep\n") == "# A page\n\n### Deep\n"
    assert with_title("No heading\n\n### Deep\n") == "No heading\n\n### Deep\n"


def test_the_drawing_of_the_rooms_is_current() -> None:
    kept = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert kept == module("rooms").draw(), "python docs/builder/rooms.py draws it again"


def test_the_glossary_is_current() -> None:
    kept = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert kept == module("glossary").page(), "python docs/builder/glossary.py writes it again"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built strictly."""
    pytest.importorskip("mkdocs", reason="the extra docs is missing")
    folder = tmp_path_factory.mktemp("site")
    module("pages").write(folder)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", "site"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "site"


@pytest.mark.slow
def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=.?(https?:[^ >]+)", text)
        assert not loaded, f"{page.name}: {loaded}"


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The site's address on a server: a browser searches no files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


HITS = (
    "return [...document.querySelectorAll('.md-search-result__item > a')].map(one => one.pathname)"
)


@pytest.mark.slow
@needs_browser
def test_its_search_answers_to_the_words_that_people_type(served: str, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    firsts = {}
    with chromium(tmp_path) as browser:
        for words in TYPED:
            browser.get(f"{served}/index.html")
            browser.execute_script("document.querySelector('label[for=__search]').click()")
            browser.find_element("css selector", "[data-md-component=search-query]").send_keys(
                words
            )
            hits = WebDriverWait(browser, 30).until(lambda one: one.execute_script(HITS))
            firsts[words] = hits[0].removeprefix("/").removesuffix(".html")
    assert firsts == TYPED


READ = (  # one page of each kind
    "index.html", "choose.html", "training.html", "evaluation.html", "models.html",
    "glossary.html", "commands.html", "readme.html", "changelog.html", "contribute.html",
    "objectives/index.html", "objectives/goal.html", "reference/index.html",
    "reference/objectives.html", "results/flickr8k/index.html", "benchmarks/RESULTS.html",
    "losses.html", "serve.html", "results/flickr8k/study/table.html",
)  # fmt: skip


@pytest.mark.slow
@needs_browser
@needs_axe
def test_everybody_can_read_the_site(site: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        for page in READ:
            address = (site / page).as_uri()
            for dark in (False, True):
                browser.get(address)
                browser.execute_script("localStorage.clear()")  # it remembers its colours
                found = violations(browser, address, dark)
                assert found == [], f"{page}, dark: {dark}"
            with window(browser, 390):
                browser.get(address)
                wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, f"{page} sticks out on a phone"


def test_aliases_show_their_own_formulas() -> None:
    shown = module("objective_pages")._formulas(objectives["circle"])
    assert any("cir" in line for line in shown)
    assert not any("con" in line for line in shown)

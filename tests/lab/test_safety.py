"""Attacks: other hosts, no token, paths, scripts in captions, bombs, slow and huge uploads."""

import asyncio
import io
import json
import os
import signal
import socket
import struct
import threading
import time
import zlib
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab, NotFound
from simgrad.lab.safety import Access, Guard, inside
from simgrad.lab.workers import BadPicture, Decoders, Overloaded, Threads, UploadLimits
from simgrad.runs.recipe import Recipe
from simgrad.training import train
from tests.lab.conftest import LIMITS

SCRIPT = "<script>alert(1)</script>"


def png(size: tuple[int, int], mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, "PNG")
    return buffer.getvalue()


def noise() -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 90).save(buffer, "PNG")
    return buffer.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is huge, and is."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width // 8 + 1) * 2000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]", "a" * 500])
def test_other_names_are_not_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"])
def test_own_names_are(client: TestClient, host: str) -> None:
    assert client.get("/api/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://[",
        "file://",
        "http://127.0.0.1:9999",
        "https://127.0.0.1",
    ],
)
def test_other_sites_cannot_post(client: TestClient, origin: str) -> None:
    answer = client.post("/api/bench", json={}, headers={"origin": origin})
    assert answer.status_code == 403
    own = {"origin": f"http://{client.base_url.netloc.decode()}"}
    assert client.post("/api/bench", json={}, headers=own).status_code == 200


def test_security_headers_are_on_everything(client: TestClient) -> None:
    for address in ("/", "/static/lab.css", "/api/health", "/none", "/pictures/nt/test/0"):
        headers = client.get(address).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_a_token_is_needed_elsewhere(lab: Lab) -> None:
    access = Access.for_host("0.0.0.0")
    assert access.token is not None
    assert len(access.token) >= 32
    with TestClient(create_app(lab, access), base_url="http://example.net") as client:
        assert client.get("/").status_code == 401
        assert client.get("/static/lab.css").status_code == 401
        assert client.get("/api/health?token=wrong").status_code == 401
        for wrong in ("Bearer wrong", "Bearer", "Basic x", "Bearer \xff"):
            headers = {"authorization": wrong.encode("latin-1")}
            assert client.get("/", headers=headers).status_code == 401
        good = {"authorization": f"Bearer {access.token}"}
        assert client.get("/api/health", headers=good).status_code == 200
        moved = client.get(f"/bench?a=1&token={access.token}", follow_redirects=False)
        assert moved.status_code == 303
        assert moved.headers["location"] == "/bench?a=1"
        assert "HttpOnly" in moved.headers["set-cookie"]
        assert client.get("/").status_code == 200  # by the cookie
        several = client.get(f"/search?run=a&token={access.token}&run=b&q=", follow_redirects=False)
        assert several.headers["location"] == "/search?run=a&run=b&q="
        there = client.get(f"//evil.example?token={access.token}", follow_redirects=False)
        assert not there.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize(
    "foreign", ['a="', "a b=c", "x=\xff", "=", "simgrad_token", "{}", ";;", "a"]
)
def test_a_foreign_cookie_hides_no_token(lab: Lab, foreign: str) -> None:
    access = Access.for_host("0.0.0.0", "a token with = and ; in it")
    with TestClient(create_app(lab, access), base_url="http://example.net") as client:
        address = client.get("/?token=" + quote(access.token or ""), follow_redirects=False)
        own = address.headers["set-cookie"].partition(";")[0]
        client.cookies.clear()
        for cookies in (
            f"{foreign}; {own}",
            f"{own}; {foreign}",
            f"{own.partition('=')[0]}=old; {own}",
        ):
            headers = {"cookie": cookies.encode("latin-1")}
            assert client.get("/api/health", headers=headers).status_code == 200, cookies
        headers = {"cookie": foreign.encode("latin-1")}
        assert client.get("/api/health", headers=headers).status_code == 401


def test_other_users_of_this_machine_need_the_link(lab: Lab) -> None:
    access = Access.for_host("127.0.0.1")
    link = access.url("127.0.0.1", 8000)
    with TestClient(create_app(lab, access), base_url="http://127.0.0.1:8000") as client:
        for page in ("/", "/api/overview", "/pictures/nt/test/0", "/static/lab.css"):
            assert client.get(page).status_code == 401
        assert client.get(link.removeprefix("http://127.0.0.1:8000")).status_code == 200
        assert client.get("/api/overview").status_code == 200  # by the cookie


def test_two_servers_on_one_machine_keep_their_cookies_apart(lab: Lab) -> None:
    """A browser gives a cookie to every port of a host."""
    cookies = {}
    for port in (8000, 8001):
        access = Access.for_host("127.0.0.1")
        with TestClient(create_app(lab, access), base_url=f"http://127.0.0.1:{port}") as client:
            answer = client.get(f"/?token={access.token}", follow_redirects=False)
            name, _, _ = answer.headers["set-cookie"].partition("=")
            cookies[name] = port
    assert len(cookies) == 2


def test_a_request_with_two_lengths_is_refused(server: str) -> None:
    """Both headers in one request are how a second request is smuggled past a server."""
    host, _, port = server.removeprefix("http://").partition(":")
    text = "POST /api/bench HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    text += "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(text.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_tokens(lab: Lab) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.168.1.2", "example.net"):
        assert Access.for_host(host).token
        assert Access.for_host(host).token != Access.for_host(host).token
    assert Access.for_host("127.0.0.1", "none").token is None
    with pytest.raises(InputError, match="for this machine alone"):
        Access.for_host("0.0.0.0", "none")
    with pytest.raises(InputError, match="16 at least"):
        Access.for_host("127.0.0.1", "short")


@pytest.mark.parametrize(
    "address",
    [
        "/pictures/nt/test/..%2f..%2f..%2fetc%2fpasswd",
        "/pictures/nt/..%2f..%2fbest/0",
        "/pictures/..%2fnt/test/0",
        "/pictures/%2fetc%2fpasswd/test/0",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static//etc/passwd",
        "/static/..%5capp.py",
        "/runs/..%2f..%2fetc%2fpasswd",
        "/api/runs/%00",
        "/api/runs/%ff",
    ],
)
def test_paths_lead_nowhere(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert 400 <= answer.status_code < 500
    assert b"root:" not in answer.content
    assert b"import" not in answer.content


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on data whose captions, names and links are an attack."""
    folder = tmp_path_factory.mktemp("hostile")
    secret = folder / "secret.png"
    secret.write_bytes(png((8, 8)))
    data = folder / "data"
    for split, count in (("train", 6), ("val", 2), ("test", 4)):
        (data / split).mkdir(parents=True)
        for k in range(count):
            name = data / split / f'{k}"><img src=x>'
            name.with_name(name.name + ".png").write_bytes(png((8, 8)))
            captions = f"{SCRIPT} {{{{7*7}}}} \"'>{k}\na red dog {k}\n"
            name.with_name(name.name + ".txt").write_text(captions)
    link = data / "test" / "linked.png"
    link.symlink_to(secret)
    link.with_suffix(".txt").write_text("a link\n")
    (data / "test" / "text.png").write_text("root:x:0:0")
    (data / "test" / "text.txt").write_text("not a picture\n")
    (data / "test" / "zbomb.png").write_bytes(bomb(30_000, 30_000))
    (data / "test" / "zbomb.txt").write_text("a bomb\n")
    features = folder / "features"
    features.mkdir()
    splits = {}
    for name, split in open_dataset(data).splits.items():
        array = np.random.default_rng(0).normal(size=(split.num_images, 4)).astype(np.float32)
        np.save(features / f"{name}.npy", array)
        splits[name] = {"file": f"{name}.npy", "images": list(split.image_names)}
    (features / "features.json").write_text(json.dumps({"splits": splits}))
    recipe = Recipe(
        data=str(data),
        features=str(features),
        model="vse++(dimension=8, word_dimension=8)",
        objective="nt-xent",
        epochs=1,
        min_count=1,
    )
    return train(recipe, folder / "run", quiet=True).path


def test_captions_and_names_are_escaped_and_links_are_not_followed(hostile: Path) -> None:
    lab = Lab([hostile], limits=LIMITS)
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as client:
        page = client.get("/search", params={"q": SCRIPT, "top": 50}).text
        assert "alert(1)" in page
        assert SCRIPT not in page
        assert "<img src=x>" not in page
        assert "{{7*7}}" in page  # a caption is no template
        for found in client.get("/api/search?q=dog&top=50").json()[0]["images"]:
            status = client.get(found["picture"]).status_code
            odd = any(word in found["name"] for word in ("linked", "text", "zbomb"))
            assert status == (404 if odd else 200), found["name"]


def test_inside(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in" / "loop")
    assert inside(tmp_path / "in" / "a.png", tmp_path / "in")
    assert not inside(tmp_path / "in" / ".." / "a.png", tmp_path / "in")
    assert not inside(tmp_path / "inside.png", tmp_path / "in")
    assert not inside(tmp_path / "a\0b", tmp_path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"hello", "not a picture"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 100, "cannot be used"),
        (noise()[:2000], "cannot be used"),
        (bomb(60_000, 60_000), "pixels"),
        (png((1500, 1500)), "pixels"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
    ],
)
def test_bad_pictures_are_refused_with_a_reason(client: TestClient, data: bytes, said: str) -> None:
    answer = client.post("/api/search/picture", files={"picture": ("x.png", data)})
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK", "I"])
def test_every_kind_of_picture_is_decoded(lab: Lab, mode: str) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (30, 20)).save(buffer, "TIFF" if mode in {"CMYK", "I", "I;16"} else "PNG")
    assert lab.decoders.rgb(buffer.getvalue()).size == (30, 20)


def test_a_photo_is_turned_upright_and_large_ones_are_shrunk(lab: Lab) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    Image.new("RGB", (40, 20)).save(buffer, "JPEG", exif=exif)
    assert lab.decoders.rgb(buffer.getvalue()).size == (20, 40)
    assert lab.decoders.rgb(png((1900, 1000))).size == (1600, 842)


def test_uploads_have_a_size(client: TestClient) -> None:
    answer = client.post("/api/search/picture", files={"picture": b"x" * (LIMITS.bytes + 1)})
    assert answer.status_code == 413

    def chunks() -> object:  # no length is told
        for _ in range(40):
            yield b"x" * (1 << 16)

    answer = client.post("/api/search/picture", content=chunks())  # type: ignore[arg-type]
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"--a\r\n"),
        ("multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: form-data\r\n\r\n--a--"),
        ("application/json", b"{}"),
        ("application/x-www-form-urlencoded", b"picture=x"),
        ("", b""),
    ],
)
def test_damaged_forms(client: TestClient, kind: str, body: bytes) -> None:
    headers = {"content-type": kind}
    answer = client.post("/api/search/picture", content=body, headers=headers)
    assert 400 <= answer.status_code < 500


def test_slow_and_cut_uploads() -> None:
    reached = []

    async def app(scope: object, receive: object, send: object) -> None:
        reached.append(scope)

    guard = Guard(app, Access.for_host("127.0.0.1", "none"), UploadLimits(body_seconds=0.1))
    scope = {
        "type": "http", "method": "POST", "path": "/", "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }  # fmt: skip

    async def run(messages: list[dict[str, object]]) -> int:
        sent = []

        async def receive() -> dict[str, object]:
            if messages:
                return messages.pop(0)
            await asyncio.sleep(10)
            return {}

        async def send(message: object) -> None:
            sent.append(message)

        await guard(scope, receive, send)  # type: ignore[arg-type]
        return int(sent[0]["status"])  # type: ignore[index]

    part = {"type": "http.request", "body": b"x", "more_body": True}
    assert asyncio.run(run([part])) == 408
    assert asyncio.run(run([part, {"type": "http.disconnect"}])) == 400
    assert not reached
    assert guard._arriving == 0


def test_a_killed_decoder_comes_back(client: TestClient, lab: Lab) -> None:
    data = png((20, 20))
    assert lab.decoders.rgb(data).size == (20, 20)
    for _ in range(3):
        for pid in lab.decoders.pids:
            os.kill(pid, signal.SIGKILL)
        answer = client.post("/api/search/picture", files={"picture": data})
        assert answer.status_code == 200


def test_decoders_killed_at_work_are_replaced(lab: Lab) -> None:
    data = png((1400, 1400))
    stop = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        while not stop.is_set():
            try:
                assert lab.decoders.rgb(data).width == 1400
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        time.sleep(0.4)  # longer than a start, so that no job is hit twice
        for pid in lab.decoders.pids[:1]:
            os.kill(pid, signal.SIGKILL)
    stop.set()
    for thread in threads:
        thread.join()
    assert len([f for f in failures if "broke down" not in str(f)]) == 0
    assert len(failures) <= 2  # a job whose second decoder is killed too is given up
    assert lab.decoders.rgb(data).width == 1400


def test_a_decoder_that_hangs_is_replaced() -> None:
    decoders = Decoders(1, UploadLimits(seconds=3.0))
    try:
        assert decoders.rgb(png((9, 9))).size == (9, 9)
        object.__setattr__(decoders.limits, "seconds", 0.3)
        os.kill(decoders.pids[0], signal.SIGSTOP)
        with pytest.raises(BadPicture, match="more than"):
            decoders.rgb(png((9, 9)))
        object.__setattr__(decoders.limits, "seconds", 5.0)
        assert decoders.rgb(png((9, 9))).size == (9, 9)
    finally:
        decoders.close()
    assert decoders.pids == []


def test_too_much_at_once_is_told(lab: Lab) -> None:
    async def flood() -> list[object]:
        threads = Threads(1, 2)
        release = threading.Event()
        jobs = [asyncio.ensure_future(threads.run(release.wait, 5)) for _ in range(6)]
        await asyncio.sleep(0.05)
        release.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert await threads.run(lambda: 1) == 1  # room again
        threads.close()
        return results

    results = asyncio.run(flood())
    assert sum(isinstance(result, Overloaded) for result in results) == 3
    app = create_app(lab)

    @app.get("/busy")
    def busy() -> None:
        raise Overloaded

    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.get("/busy")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


def test_pictures_outside_are_never_addressed(lab: Lab) -> None:
    for run, split, row in (("../x", "test", 0), ("nt", "../test", 0), ("nt", "test", -1)):
        with pytest.raises(NotFound):
            lab.picture(run, split, row, 96)

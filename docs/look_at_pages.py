"""Opens every page of the built site in Chromium at desktop and phone width: `mkdocs build; python docs/look_at_pages.py site`.

Prints the pages that are wider than the window, with what sticks out, and ends with exit code 1 if there are any. `--shots
FOLDER` also saves a picture of each page at both widths. One browser opens all, each in a frame as wide as the window would be.
"""

import argparse
import functools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WIDTHS = (1280, 390)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
PATIENCE_SECONDS = 240
HARNESS = """<!doctype html><body style="margin:0"><script>
const pages = %s, widths = %s, found = [];
function sticks(document, width) {
  const names = [];
  for (const element of document.querySelectorAll("article *")) {
    const scrolls = element.closest(".md-typeset__scrollwrap, pre, code, table, .md-nav");
    const right = element.getBoundingClientRect().right;
    if (!scrolls && right > width + 1) names.push(element.tagName + ": " + element.textContent.slice(0, 60));
  }
  return names.slice(0, 3);
}
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-same-origin";  // without the page's scripts, which change colors and search, not widths
  frame.style.cssText = "border:0;height:900px;width:" + width + "px";
  frame.src = "/" + page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const seen = frame.contentDocument;
  const wide = seen.documentElement.scrollWidth;
  const broken = [...seen.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src);
  if (wide > width || broken.length) found.push({page, width, wide, sticks: sticks(seen, width), broken});
  frame.remove();
}
(async () => {
  for (const page of pages) for (const width of widths) await look(page, width);
  await fetch("/result", {method: "POST", body: JSON.stringify({pages: pages.length, found})});
})();
</script>"""


def browser() -> str | None:
    """The browser of this machine, None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def served(folder: Path, told: "queue.SimpleQueue[bytes] | None" = None) -> Iterator[str]:
    """The folder under an address of this machine. told: takes what is posted there."""

    class Handler(SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take what the page found."""
            if told is not None:
                told.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pages_of(site: Path) -> list[str]:
    """Every page, by its path in the site."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")


def too_wide(site: Path, program: str, widths: tuple[int, ...] = WIDTHS) -> dict[str, Any]:
    """How many pages were opened, and those that are wider than a window, or whose pictures are missing.

    Raises `queue.Empty` when the browser does not finish in time.
    """
    told: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "site"
        root.mkdir()
        for entry in site.iterdir():
            (root / entry.name).symlink_to(entry.resolve())
        (root / "look.html").write_text(HARNESS % (json.dumps(pages_of(site)), json.dumps(widths)), "utf-8")
        with served(root, told) as address:
            profile = f"--user-data-dir={folder}/profile"
            command = [program, *FLAGS, profile, "--remote-debugging-port=0", f"{address}/look.html"]
            opened = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                found: dict[str, Any] = json.loads(told.get(timeout=PATIENCE_SECONDS))
            finally:
                os.killpg(opened.pid, signal.SIGKILL)
                opened.wait()
    return found


def shoot(site: Path, program: str, folder: Path) -> None:
    """Save a picture of each page at each width. Narrow ones are taken in a frame: a window has a smallest width."""
    folder.mkdir(parents=True, exist_ok=True)
    with served(site) as address, tempfile.TemporaryDirectory() as profile:
        for page in pages_of(site):
            for width in WIDTHS:
                name = f"{page.removesuffix('index.html').strip('/').replace('/', '-') or 'index'}-{width}.png"
                frame = f'<body style="margin:0"><iframe src="{address}/{page}" style="border:0;width:{width}px;height:2400px">'
                start = Path(profile) / "page.html"
                start.write_text(frame, "utf-8")
                target = [f"--screenshot={folder / name}", f"--window-size={max(width, 500)},2400", start.as_uri()]
                command = [program, *FLAGS, f"--user-data-dir={profile}/p", *target]
                subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)


def main() -> int:
    """Look, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--shots", type=Path)
    given = parser.parse_args()
    program = browser()
    if program is None:
        print("no browser here: install chromium")
        return 1
    told = too_wide(given.site, program)
    print(f"{told['pages']} pages at {' and '.join(map(str, WIDTHS))} px")
    for wrong in told["found"]:
        print(json.dumps(wrong, ensure_ascii=False))
    if given.shots:
        shoot(given.site, program, given.shots)
    return int(bool(told["found"]))


if __name__ == "__main__":
    sys.exit(main())

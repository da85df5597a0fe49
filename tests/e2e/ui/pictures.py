"""Take the pictures of the README: `python -m tests.e2e.ui.pictures` runs the demo and saves a page, light and dark."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.e2e.ui.conftest import FLAGS

IMAGES = Path(__file__).parents[3] / "docs" / "images"
SIZE = {"width": 1280, "height": 640}


def start_demo() -> tuple[subprocess.Popen[str], str]:
    """Run the demo; returns its process and the address of the web UI once its job is complete."""
    command = [sys.executable, "-m", "aaiclick", "demo", "--serve"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address = None
    for line in process.stderr:
        address = address or re.search(r"Web UI: (http:[\w.:/]+)", line)
        if "of them repeated" in line:
            return process, address[1]
    raise RuntimeError("the demo failed")


def main() -> None:
    """Save the page of the demo's shop."""
    process, address = start_demo()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            for scheme in ("light", "dark"):
                page = browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=1).new_page()
                page.goto(f"{address}/dags/shop")
                page.screenshot(path=IMAGES / f"ui-shop-{scheme}.png")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


if __name__ == "__main__":
    main()

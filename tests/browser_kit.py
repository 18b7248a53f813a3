"Drive a real Chromium, and a real JupyterLab in it."

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDE, PHONE = (1280, 800), (390, 844)
PATIENT_MS = 120_000  # A loaded machine is no failure

RUN_ALL = """async () => {
  const { commands, shell } = window.jupyterapp;
  const session = shell.currentWidget.context.sessionContext;
  await session.ready;
  await session.session.kernel.info;
  await commands.execute("notebook:run-all-cells");
}"""


def find_chromium() -> str | None:
    "Name the browser: VID2CONTEXT_CHROMIUM, or the first one on the path."
    named = os.environ.get("VID2CONTEXT_CHROMIUM", "")
    return next((p for n in (named, *NAMES) if n and (p := shutil.which(n))), None)


@contextmanager
def open_browser(profile: Path) -> Iterator[BrowserContext]:
    """Run Chromium headless on an empty profile.

    While it is open no other event loop runs in this thread: leave it before
    `asyncio.run`.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(profile),
            executable_path=find_chromium(),
            headless=True,
            args=list(FLAGS),
            viewport={"width": WIDE[0], "height": WIDE[1]},
        )
        browser.set_default_timeout(PATIENT_MS)
        expect.set_options(timeout=PATIENT_MS)
        try:
            yield browser
        finally:
            browser.close()


def listen(page: Page) -> list[str]:
    "Collect what goes wrong on a page from now on: errors and failed requests."
    found: list[str] = []

    def note(message: object) -> None:
        if getattr(message, "type", "") == "error":
            found.append(f"console: {getattr(message, 'text', '')}")

    page.on("console", note)
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on("requestfailed", lambda asked: found.append(f"not loaded: {asked.url}"))
    return found


def free_port() -> int:
    "Find a loopback port that nobody listens on."
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Lab:
    "One JupyterLab server on loopback, with a token, in a folder of its own."

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        self.port, self.token = free_port(), secrets.token_hex(16)
        self.base = f"http://127.0.0.1:{self.port}"
        homes = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR",
                 "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR",
                 "JUPYTERLAB_WORKSPACES_DIR")  # fmt: skip
        env = os.environ | {name: str(folder / name.lower()) for name in homes}
        settings = folder / "jupyterlab_settings_dir" / "@jupyterlab"
        quiet = settings / "apputils-extension" / "notification.jupyterlab-settings"
        quiet.parent.mkdir(parents=True)
        quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}')
        env |= {"JUPYTER_TOKEN": self.token, "PYTHONWARNINGS": "ignore"}
        self.log = folder / "lab.log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
             "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}",
             "--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.folder}",
             "--LabApp.extension_manager=readonly",
             "--LabApp.expose_app_in_browser=True"],
            env=env,
            cwd=self.folder,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        request = urllib.request.Request(
            f"{self.base}/api/status", headers={"Authorization": f"token {self.token}"}
        )
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(request).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"JupyterLab ended:\n{self.log.read_text()}")

    def close(self) -> None:
        "Stop the server and its kernels."
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def open(self, browser: BrowserContext, name: str, cells: Sequence[str]) -> Page:
        "Write a notebook of these cells and show it, none of them run."
        kernel = {"display_name": "python3", "language": "python", "name": "python3"}
        book = {
            "cells": [
                {"cell_type": "code", "execution_count": None, "id": f"cell-{i}",
                 "metadata": {}, "outputs": [], "source": cell}
                for i, cell in enumerate(cells)
            ],
            "metadata": {"kernelspec": kernel},
            "nbformat": 4,
            "nbformat_minor": 5,
        }  # fmt: skip
        (self.folder / name).write_text(json.dumps(book))
        page = browser.new_page()
        page.goto(f"{self.base}/doc/tree/{name}?token={self.token}")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        return page

    def run(self, page: Page) -> None:
        "Run all cells and wait for the last; raises with what an error printed."
        page.evaluate(RUN_ALL)
        failed = page.locator(".jp-OutputArea-output[data-mime-type*=error]")
        if failed.count():
            raise AssertionError(failed.first.inner_text())

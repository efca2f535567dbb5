"""Lets `cargo xtask test` list the tests that pytest skipped."""

import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get("TOOLBRIDGE_SKIPPED")
    # With xdist, each report also arrives in the main process, which writes it.
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.skipped and path and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        with open(path, "a") as file:
            file.write(f"{report.nodeid}: {reason}\n")

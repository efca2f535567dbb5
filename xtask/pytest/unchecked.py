"""Has `cargo xtask test` say at its end which tests of pytest's checked nothing: those that were skipped."""

import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get("TOOLBRIDGE_UNCHECKED")
    # Each report comes once more to the process that started the workers.
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.skipped and path and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        with open(path, "a") as file:
            file.write(f"{report.nodeid}: {reason}\n")

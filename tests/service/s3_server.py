"""An S3-compatible server on loopback, for the tests of object stores."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",  # a store that fails on purpose does so at once
}
BUCKET = "sessions-of-tests"


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """The address of an empty server, which ends with the block. It writes a log."""
    with log.open("w") as file:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        while (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)  # the test's time limit ends this
        yield found.group()
    finally:
        process.kill()
        process.wait()

"""Threads and memory follow what a container may use, not what its machine has.

Internals: the files of other machines are read, which a server in a test does not have.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from telegrad_service.process import cpu_quota, memory_bytes, memory_limit, usable_cores

pytestmark = pytest.mark.full

V2, V1 = "0::/app/server\n", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n"


def machine(root: Path, groups: str | None, **files: str) -> Path:
    """A root directory with these control groups."""
    if groups is not None:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".").replace("_comma_", ",")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        (None, {}, math.inf),
        ("", {}, math.inf),
        ("nonsense\n", {}, math.inf),
        (V2, {"app__server__cpu_dot_max": "150000 100000\n"}, 1.5),
        (V2, {"app__server__cpu_dot_max": "max 100000\n"}, math.inf),
        (V2, {"app__server__cpu_dot_max": "max 100000\n", "app__cpu_dot_max": "200000 100000\n"}, 2.0),
        (V2, {"app__server__cpu_dot_max": "400000 100000\n", "app__cpu_dot_max": "50000 100000\n"}, 0.5),
        # A container sees its own group at the mount point, under whatever path the host gave it.
        (V2, {"cpu_dot_max": "300000 100000\n"}, 3.0),
        ("0::/../outside\n", {"cpu_dot_max": "300000 100000\n"}, 3.0),
        (V2, {"cpu_dot_max": "nonsense\n"}, math.inf),
        (V2, {"cpu_dot_max": "100000 0\n"}, math.inf),
        (V1, {"cpu__cpu_dot_cfs_quota_us": "250000\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}, 2.5),
        (V1, {"cpu__cpu_dot_cfs_quota_us": "-1\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}, math.inf),
        (
            V1,
            {
                "cpu_comma_cpuacct__docker__abc__cpu_dot_cfs_quota_us": "100000\n",
                "cpu_comma_cpuacct__docker__abc__cpu_dot_cfs_period_us": "100000\n",
            },
            1.0,
        ),
    ],
)
def test_the_quota_of_a_control_group(tmp_path: Path, groups: str | None, files: dict[str, str], quota: float) -> None:
    root = machine(tmp_path, groups, **files)
    assert cpu_quota(root) == quota
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert usable_cores(root) == max(1, math.ceil(min(here, quota)))


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        (None, {}, math.inf),
        (V2, {"memory_dot_max": "max\n"}, math.inf),
        (V2, {"memory_dot_max": "1048576\n"}, 2**20),
        (V2, {"app__server__memory_dot_max": "max\n", "app__memory_dot_max": "1048576\n"}, 2**20),
        (V1, {"memory__x__memory_dot_limit_in_bytes": "1048576\n"}, 2**20),
        (V1, {"memory__memory_dot_limit_in_bytes": "9223372036854771712\n"}, 9223372036854771712),
    ],
)
def test_the_memory_of_a_control_group(tmp_path: Path, groups: str | None, files: dict[str, str], limit: float) -> None:
    root = machine(tmp_path, groups, **files)
    assert memory_limit(root) == limit
    assert memory_bytes(root) == min(limit, memory_bytes(tmp_path / "no groups"))


@pytest.mark.parametrize(("cores", "threads", "blas"), [(1, 4, 1), (2, 4, 1), (8, 8, 7), (64, 64, 63)])
def test_defaults_follow_the_quota(cores: int, threads: int, blas: int) -> None:
    from telegrad_service.process import default_blas_threads
    from telegrad_service.settings import default_threads

    assert (default_threads(cores), default_blas_threads(cores)) == (threads, blas)

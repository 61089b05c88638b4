"""Builds an sdist and a portable wheel into dist/, and tries each in an empty environment.

    python tools/wheel.py [--compiler zig|system] [--sdist]

With `zig` (default on Linux) the compiler of the ziglang package builds against glibc 2.17, so
that the wheel is manylinux_2_17 and needs nothing but the C library. With `system` the machine's
compiler builds, and auditwheel says from which glibc on the wheel installs.

The wheel is installed where no compiler is on PATH. `--sdist` also installs the sdist, with the
machine's compiler, and tries that.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheel"
GLIBC = "2.17"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "zig", "cmake", "ninja")


def run(*command: object, **environment: str) -> None:
    print("$", *command, flush=True)
    subprocess.run(list(map(str, command)), cwd=ROOT, env=os.environ | environment, check=True)


def zig_tools() -> tuple[dict[str, str], list[str]]:
    """Scripts that stand for a compiler, as environment, and what CMake must be told of them."""
    folder = WORK / "zig"
    folder.mkdir(parents=True, exist_ok=True)
    target = f"{platform.machine()}-linux-gnu.{GLIBC}"
    commands = {"cc": f"cc -target {target}", "c++": f"c++ -target {target}"}
    for name, command in (commands | {"ar": "ar", "ranlib": "ranlib"}).items():
        script = folder / f"zig-{name}"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {command} "$@"\n')
        script.chmod(0o755)
    defines = {
        "CMAKE_AR": folder / "zig-ar",
        "CMAKE_RANLIB": folder / "zig-ranlib",
        "CMAKE_CXX_SCAN_FOR_MODULES": "OFF",  # needs clang-scan-deps, and there are no modules
    }
    if platform.machine() == "x86_64":
        # __builtin_cpu_supports needs __cpu_model, which zig's runtime library does not have.
        libgcc = subprocess.check_output(["gcc", "-print-libgcc-file-name"], text=True).strip()
        defines["CMAKE_MODULE_LINKER_FLAGS"] = libgcc
    environment = {
        "CC": str(folder / "zig-cc"),
        "CXX": str(folder / "zig-c++"),
        "CMAKE_CXX_COMPILER_LAUNCHER": "",
    }
    return environment, [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]


def build(compiler: str) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    raw = WORK / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    environment, options = zig_tools() if compiler == "zig" else ({}, [])
    options.append(f"-Cbuild-dir={WORK / f'build-{compiler}'}")
    module = (sys.executable, "-m", "build", "--no-isolation")
    run(*module, "--sdist", "--outdir", DIST)
    run(*module, "--wheel", "--outdir", raw, *options, **environment)
    (wheel,) = raw.glob("*.whl")
    if sys.platform == "linux":
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", raw / "repaired", wheel)
        run(sys.executable, "-m", "auditwheel", "show", next((raw / "repaired").glob("*.whl")))
        (wheel,) = (raw / "repaired").glob("*.whl")
    wheel = Path(shutil.copy(wheel, DIST))
    sdist = max(DIST.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB, {_count(sdist)} files", flush=True)
    return sdist, wheel


def _count(sdist: Path) -> int:
    with tarfile.open(sdist) as archive:
        return sum(member.isfile() for member in archive)


def empty_environment(name: str) -> Path:
    """The Python of a fresh environment that has pip and nothing else."""
    folder = WORK / name
    venv.create(folder, clear=True, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def try_wheel(wheel: Path) -> None:
    python = empty_environment("empty")
    bare = str(python.parent)
    for tool in COMPILERS:
        assert shutil.which(tool, path=bare) is None, f"{tool} is on the PATH of the trial"
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    run(*pip, "--only-binary", ":all:", f"exactmeans[io] @ {wheel.as_uri()}", PATH=bare)
    # joblib would look for a program that counts cores.
    run(
        python, "-I", ROOT / "tools" / "smoke.py", PATH=bare, LOKY_MAX_CPU_COUNT=str(os.cpu_count())
    )


def try_sdist(sdist: Path) -> None:
    python = empty_environment("from-sdist")
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    run(*pip, f"exactmeans[io] @ {sdist.as_uri()}")
    run(python, "-I", ROOT / "tools" / "smoke.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = "zig" if sys.platform == "linux" else "system"
    parser.add_argument("--compiler", choices=("zig", "system"), default=default)
    parser.add_argument("--sdist", action="store_true", help="also build and try the sdist")
    options = parser.parse_args()
    sdist, wheel = build(options.compiler)
    try_wheel(wheel)
    if options.sdist:
        try_sdist(sdist)


if __name__ == "__main__":
    main()

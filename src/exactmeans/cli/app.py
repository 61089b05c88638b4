"""The program: its commands. An error becomes one sentence and an exit code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any

import typer

from exactmeans.cli import screen
from exactmeans.cli.fit import fit
from exactmeans.cli.info import info, version
from exactmeans.cli.predict import predict
from exactmeans.cli.report import report
from exactmeans.cli.select_k import select_k
from exactmeans.cli.tree import tree
from exactmeans.database.errors import DatabaseError

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="exactmeans",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Find groups in a file: exact, reproducible k-means.

    \b
    exactmeans info data.csv                           what is in the file
    exactmeans select-k data.csv -k 2:12               how many groups
    exactmeans fit data.csv -k 5 --model m.safetensors --report groups.html
    exactmeans predict m.safetensors new.csv --labels labels.csv
    exactmeans tree data.csv --branching 10 --labels leaves.csv

    DATA is a .csv, .tsv, .npy, .npz (CSR), .svm, .mtx, .parquet, .arrow or
    .feather file, a folder of Parquet files, a pattern such as 'part-*.csv',
    or - for CSV on standard input. With --text it is a file with a document
    per line, a column of a table, or a folder of documents. With --query and
    --key it is a database: postgresql://…, duckdb:///file or sqlite:///file.
    """,
)
app.command()(fit)
app.command()(predict)
app.command("select-k")(select_k)
app.command()(report)
app.command()(tree)
app.command()(info)
app.command()(version)

#: Parameters of the library by their names on the command line.
_OPTIONS = {
    "n_clusters": "-k",
    "k_range": "-k",
    "n_jobs": "--jobs",
    "memory_limit": "--memory-limit",
    "random_state": "--seed",
    "max_iter": "--max-iter",
    "n_init": "--starts",
    "size_min": "--size-min",
    "size_max": "--size-max",
    "size_of": "--size-of",
    "sample_weight": "--weights",
    "feature_names": "--feature-names",
    "tol": "--tol",
    "init": "--init",
    "metric": "--metric",
    "algorithm": "--algorithm",
    "checkpoint": "--checkpoint",
    "columns": "--columns",
    "delimiter": "--delimiter",
    "branching": "--branching",
    "max_leaf_size": "--max-leaf-size",
    "max_depth": "--max-depth",
    "n_leaves": "--leaves",
    "query": "--query",
    "key": "--key",
    "features": "--columns",
    "weight": "--weights",
    "connection": "DATA",
}
_PHRASES = (
    ("header must be True or False for", "say --header or --no-header for"),
    ("zero_based must be 'auto', not False", "--one-based must not be given"),
    ("zero_based must be 'auto', not True", "--zero-based must not be given"),
    ("header must be 'auto', not True", "--header must not be given"),
    ("header must be 'auto', not False", "--no-header must not be given"),
    (", 'furthest', ('d', alpha), a callable or an array of centres", " or 'furthest'"),
    ("zero_based must be True or False", "say --zero-based or --one-based"),
    (
        "pass open_blocks(path, zero_based=True) if it counts from 0",
        "say --zero-based if it counts from 0",
    ),
    (
        "name the columns to use with columns=",
        "leave it out with --exclude, or name others with --columns",
    ),
    ("leave such rows out or impute their values", "--na drop leaves such rows out"),
    ("source must exist, but there is no", "there is no file"),
    (
        "leave such rows out in the query, or pass nulls='drop'",
        "leave such rows out in the query, or say --na drop",
    ),
    ("pass layout='array'", "say --layout array"),
    ("layout=", "--layout "),
    (", or a DB-API connection", ""),
    ("memory_limit must be None, a number", "memory_limit must be a number"),
)
_OR_NONE = re.compile(r"^(--\S+ must be) None(?:,| or) ")
_IS_EMPTY = re.compile(r"(row \d+, column .+ is empty)\.$")
_HOLDS_TEXT = re.compile(r"(--columns must hold numbers, but column .+ holds text)\.$")
_NOT_A_NUMBER = re.compile(r"(is not a number)\.$")


def with_option_names(text: str) -> str:
    """A sentence of the library with the options of the command line in place of parameters."""
    for theirs, ours in _PHRASES:
        text = text.replace(theirs, ours)
    text = re.sub(r"^(\w+) must ", lambda m: f"{_OPTIONS.get(m[1], m[1])} must ", text)
    text = _OR_NONE.sub(r"\1 ", text)
    text = _IS_EMPTY.sub(r"\1: --na drop leaves such rows out.", text)
    text = _HOLDS_TEXT.sub(r"\1: leave it out of the query, or name others with --columns.", text)
    text = _NOT_A_NUMBER.sub(r"\1: leave the column out with --exclude.", text)
    return text


def run(arguments: list[str]) -> int:
    """Run a command; returns the exit code. Errors are one sentence on standard error."""
    warnings.simplefilter("ignore")
    warnings.filterwarnings("default", category=UserWarning)  # scikit-learn's and ours
    warnings.showwarning = _as_note
    try:
        command = typer.main.get_command(app)
        code = command(arguments, prog_name="exactmeans", standalone_mode=False)
        if code == INTERRUPTED:  # what typer returns, without a word, after Ctrl-C
            raise KeyboardInterrupt
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except KeyboardInterrupt:
        return _failed("interrupted; no output was written.", INTERRUPTED)
    except BrokenPipeError:  # the reader of the pipe closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (typer.Exit, SystemExit) as done:
        return int(getattr(done, "exit_code", None) or getattr(done, "code", None) or OK)
    except typer.Abort:
        return _failed("interrupted; no output was written.", INTERRUPTED)
    except Exception as error:
        return _report(error)


def _report(error: Exception) -> int:
    if hasattr(error, "format_message"):  # the command was not understood
        said = str(error.format_message())
        if not said:  # no arguments: the help was shown
            return USAGE
        context = getattr(error, "ctx", None)
        command = "exactmeans" if context is None else context.command_path
        return _failed(f"{said.rstrip('.')} (see {command} --help).", USAGE)
    if os.environ.get("EXACTMEANS_DEBUG"):
        raise error
    if isinstance(error, MemoryError):
        return _failed("memory ran out: --memory-limit bounds what a fit takes.", FAILED)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return _failed(f"{where}{error.strerror.lower()}.", FAILED)
    if isinstance(error, (ValueError, TypeError, OSError, ImportError, DatabaseError)):
        return _failed(with_option_names(str(error)), FAILED)
    return _failed(
        f"unexpected {type(error).__name__}: {error} (EXACTMEANS_DEBUG=1 shows where).", FAILED
    )


def _failed(sentence: str, code: int) -> int:
    screen.error(" ".join(sentence.split()))
    return code


def _as_note(message: Any, *_: Any, **__: Any) -> None:
    screen.note(with_option_names(str(message)))

"""The options that commands share, with their help."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from exactmeans.data.sql import LAYOUT_NAMES
from exactmeans.fit.policy import ALGORITHM_NAMES
from exactmeans.metrics import METRIC_NAMES
from exactmeans.seeding.init import INIT_NAMES

_READING, _TEXT, _FIT, _OUT = "Reading data", "Text", "Clustering", "Output"
_SQL, _TREE = "Databases", "Tree"


def _option(*names: str, help: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def _size(text: str) -> int | float | str:
    """A number of bytes or a fraction of the machine's memory; a size with a unit stays text."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def _words(words: tuple[str, ...]) -> Any:
    """Completes the words of a choice in a shell."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="The file, folder, pattern, database, or - (CSV)."),
]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A file that 'exactmeans fit --model' wrote.")
]

Columns = Annotated[
    list[str],
    _option(
        "--columns",
        "-c",
        metavar="NAMES",
        panel=_READING,
        help="Columns to use: names or numbers from 0, separated by commas, ranges as 0:4. "
        "With --text: the column of text.",
    ),
]
Exclude = Annotated[
    list[str],
    _option("--exclude", "-x", metavar="NAMES", panel=_READING, help="Columns to leave out."),
]
Id = Annotated[
    str | None,
    _option(
        "--id",
        metavar="COLUMN",
        panel=_READING,
        help="The column that names the rows; it is no feature.",
    ),
]
Weights = Annotated[
    str | None,
    _option(
        "--weights",
        metavar="COLUMN",
        panel=_READING,
        help="The column that says how much each row counts; it is no feature.",
    ),
]
Header = Annotated[
    bool | None,
    _option(
        "--header/--no-header",
        panel=_READING,
        help="Whether the first row of a CSV file has the names of the columns; "
        "detected if not given; a file whose first row could be either is refused.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    _option(
        "--delimiter",
        metavar="CHAR",
        panel=_READING,
        help="The character between cells of a CSV file; 'tab' for a tab. Detected if not given.",
    ),
]
Na = Annotated[
    str | None,
    _option(
        "--na",
        metavar="error|drop",
        panel=_READING,
        help="Refuse a missing value, the default, or leave its row out (its label is -1).",
        autocompletion=_words(("error", "drop")),
    ),
]
ZeroBased = Annotated[
    bool | None,
    _option(
        "--zero-based/--one-based",
        panel=_READING,
        show_default=False,
        help="Where the indices of an svmlight file begin; 1 unless it has an index 0.",
    ),
]
Standardize = Annotated[
    bool,
    _option(
        "--standardize",
        panel=_READING,
        help="Give every column mean 0 and standard deviation 1 (sparse data is only divided).",
    ),
]
FeatureNames = Annotated[
    str | None,
    _option(
        "--feature-names",
        metavar="FILE",
        panel=_READING,
        help="A file with a name per line for the columns of DATA that has none.",
    ),
]
Query = Annotated[
    str | None,
    _option("--query", metavar="SQL", panel=_SQL, help="The statement that returns the rows."),
]
Key = Annotated[
    str | None,
    _option(
        "--key",
        metavar="COLUMN",
        panel=_SQL,
        help="The column of the query that identifies the rows; it is no feature.",
    ),
]
Layout = Annotated[
    str,
    _option(
        "--layout",
        metavar="|".join(LAYOUT_NAMES),
        panel=_SQL,
        help="A column per feature, one column of arrays, or triples of key, column number "
        "and value.",
        autocompletion=_words(LAYOUT_NAMES),
    ),
]
Into = Annotated[
    str | None,
    _option(
        "--into",
        metavar="TABLE",
        panel=_SQL,
        help="Write key, cluster and distance of each row to this table of the database.",
    ),
]
Schema = Annotated[
    str | None,
    _option("--schema", metavar="NAME", panel=_SQL, help="The schema of that table."),
]

IsText = Annotated[
    bool,
    _option(
        "--text",
        panel=_TEXT,
        help="DATA is text: a document per line, a column of a table (--columns), or a "
        "folder with a document per file.",
    ),
]
Tfidf = Annotated[
    bool,
    _option("--tfidf", panel=_TEXT, help="DATA has counts of terms: weigh them by TF-IDF."),
]
StopWords = Annotated[
    str,
    _option(
        "--stop-words",
        metavar="english|none",
        panel=_TEXT,
        help="Words that do not count.",
        autocompletion=_words(("english", "none")),
    ),
]
MinDf = Annotated[
    int | None,
    _option(
        "--min-df",
        metavar="N",
        panel=_TEXT,
        help="Use terms that at least N documents have; 2 if not given, 1 for less than 50 "
        "documents.",
        min=1,
    ),
]

Clusters = Annotated[
    str,
    _option(
        "-k",
        "--clusters",
        metavar="K|auto",
        panel=_FIT,
        help="How many clusters; auto chooses as select-k does.",
    ),
]
Metric = Annotated[
    str | None,
    _option(
        "--metric",
        metavar="|".join(METRIC_NAMES),
        panel=_FIT,
        help="The distance: euclidean, but cosine for text.",
        autocompletion=_words(METRIC_NAMES),
    ),
]
Init = Annotated[
    str,
    _option(
        "--init",
        metavar="NAME",
        panel=_FIT,
        help=f"How to choose initial centres: {', '.join(INIT_NAMES)}.",  # one name has two bars
        autocompletion=_words(tuple(INIT_NAMES)),
    ),
]
Algorithm = Annotated[
    str,
    _option(
        "--algorithm",
        metavar="NAME",
        panel=_FIT,
        help="How to find nearest centres; changes time, never the result.",
        autocompletion=_words(ALGORITHM_NAMES),
    ),
]
SizeMin = Annotated[
    str | None,
    _option(
        "--size-min",
        metavar="SIZE",
        panel=_FIT,
        help="The fewest rows of a cluster: 50, or 0.9 for a share of the mean size.",
    ),
]
SizeMax = Annotated[
    str | None,
    _option(
        "--size-max",
        metavar="SIZE",
        panel=_FIT,
        help="The most rows of a cluster: 50, or 1.1 for a share of the mean size.",
    ),
]
SizeOf = Annotated[
    str,
    _option(
        "--size-of",
        metavar="rows|weight",
        panel=_FIT,
        help="What --size-min and --size-max count.",
        autocompletion=_words(("rows", "weight")),
    ),
]
Starts = Annotated[
    int | None,
    _option(
        "--starts",
        metavar="N",
        panel=_FIT,
        min=1,
        help="Runs from different initial centres, of which the best is kept; "
        "if not given, 10 for --init random, else 1.",
    ),
]
Seed = Annotated[
    int,
    _option("--seed", metavar="N", panel=_FIT, min=0, help="The same seed gives the same result."),
]
Jobs = Annotated[
    int | None,
    _option("--jobs", "-j", metavar="N", panel=_FIT, help="Threads; all cores if not given."),
]
MemoryLimit = Annotated[
    Any,
    _option(
        "--memory-limit",
        metavar="SIZE",
        panel=_FIT,
        parser=_size,
        help="Memory beside the data: 2GB, bytes, or 0.5 for a share of the machine's.",
    ),
]
Tol = Annotated[
    float, _option("--tol", metavar="T", panel=_FIT, help="Stop when centres move less than this.")
]
MaxIter = Annotated[
    int, _option("--max-iter", metavar="N", panel=_FIT, min=1, help="The most iterations.")
]
CheckpointPath = Annotated[
    str | None,
    _option(
        "--checkpoint",
        metavar="FILE",
        panel=_FIT,
        help="Keep the running fit in this file; the same command resumes from it.",
    ),
]

Branching = Annotated[
    int, _option("--branching", "-b", panel=_TREE, help="The most children of a node.")
]
MaxLeafSize = Annotated[
    int | None,
    _option("--max-leaf-size", panel=_TREE, help="Nodes with at most this many rows are leaves."),
]
MaxDepth = Annotated[
    int | None, _option("--max-depth", panel=_TREE, help="Nodes at this depth are leaves.")
]
Leaves = Annotated[
    int | None, _option("--leaves", panel=_TREE, help="Stop at this number of leaves.")
]
Balanced = Annotated[
    bool, _option("--balanced", panel=_TREE, help="Give the children of a node equal sizes.")
]
Newick = Annotated[
    str | None,
    _option("--newick", metavar="OUT", panel=_OUT, help="Write the tree in Newick's format: .nwk."),
]

ModelOut = Annotated[
    str | None,
    _option("--model", "-m", metavar="OUT", panel=_OUT, help="Write the model: .safetensors."),
]
Centers = Annotated[
    str | None,
    _option(
        "--centers", metavar="OUT", panel=_OUT, help="Write the centres: .csv, .parquet or .npy."
    ),
]
Report = Annotated[
    str | None,
    _option("--report", "-r", metavar="OUT", panel=_OUT, help="Write an HTML report: .html."),
]
Labels = Annotated[
    str | None,
    _option(
        "--labels",
        metavar="OUT",
        panel=_OUT,
        help="Write the cluster of each row: .csv, .parquet or .npy.",
    ),
]
Json = Annotated[bool, _option("--json", panel=_OUT, help="Print the result as JSON.")]
Force = Annotated[bool, _option("--force", "-f", panel=_OUT, help="Replace files that exist.")]
Quiet = Annotated[bool, _option("--quiet", "-q", panel=_OUT, help="No notes, no progress.")]


def size(name: str, given: str | None) -> int | float | None:
    """A number of rows, or a share of the mean size if there is a decimal point."""
    if given is None:
        return None
    try:
        return float(given) if "." in given else int(given)
    except ValueError:
        raise ValueError(
            f"{name} must be a number of rows such as 50, or a share of the mean size such as 1.1, "
            f"not {given!r}."
        ) from None

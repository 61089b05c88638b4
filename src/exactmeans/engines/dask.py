"""All blocks on the workers of a Dask cluster, one site per worker.

A question goes to all sites as one task each; what they answer is put together in a tree of fixed
shape. Nothing here holds anything of the size of the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import distributed
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans._centres import from_core, normalise
from exactmeans._metrics import Metric
from exactmeans._problem import Frame
from exactmeans._validation import Double, Lengths, Matrix, refuse_nonfinite
from exactmeans.engines.dask_seeding import DaskSeeding
from exactmeans.engines.engine import FarRow, Tally
from exactmeans.engines.local import bytes_of
from exactmeans.engines.site import Ask, Blank, Centres, Look, Reply, Site, make_site

Labels = NDArray[np.int32]

_FAN_IN = 8  # answers that are put together by one task
_SMALL = 2**20  # bytes that may go through the scheduler in a question to all sites


# What answers come to, put together ---------------------------------------------------------------


def _surveys(values: list[_core.Survey]) -> _core.Survey:
    whole = _core.Survey(len(values[0].bounds))
    for value in values:
        whole.merge(value, 0)
    return whole


def _exact(values: list[tuple[_core.ExactSum, ...]]) -> tuple[_core.ExactSum, ...]:
    totals = tuple(_core.ExactSum() for _ in values[0])
    for value in values:
        for total, own in zip(totals, value, strict=True):
            total.add(own)
    return totals


def _sums(values: list[tuple[Blank, _core.Exported] | None]) -> tuple[Blank, _core.Exported]:
    some = [value for value in values if value is not None]
    if len(some) == 1:
        return some[0]
    sums = _core.Sums(*some[0][0])
    for _, exported in some:
        sums.absorb(exported)
    return some[0][0], sums.export()


def _assigned(values: list[tuple[Tally, Blank, Any]]) -> tuple[Tally, Blank, Any]:
    tally = Tally(*(sum(counts) for counts in zip(*(value[0] for value in values), strict=True)))
    return tally, *_sums([value[1:] for value in values])


def _pairs(values: list[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    return [
        (sum(high for high, _ in own), sum(low for _, low in own))
        for own in zip(*values, strict=True)
    ]


def _largest(values: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(max, zip(*values, strict=True)))


def _all(values: list[list[Any]]) -> list[Any]:
    return [item for value in values for item in value]


def _lengths(values: list[Lengths]) -> Lengths:
    longest = min(values, key=lambda own: (-own.longest, own.longest_row))
    zeros = [own for own in values if own.zeros]
    return longest._replace(
        zeros=sum(own.zeros for own in zeros),
        first_zero=min((own.first_zero for own in zeros), default=-1),
    )


MERGES: dict[str, Callable[[list[Any]], Any]] = {
    "survey": _surveys,
    "words_needed": max,
    "weight_words": max,
    "largest_weight": max,
    "add_all": _sums,
    "scatter": _exact,
    "squares": _exact,
    "lengths": _lengths,
    "total_weight": _sums,
    "assign": _assigned,
    "move_row": _sums,
    "followers": _sums,
    "potentials": _pairs,
    "start": _largest,
    "largest": _largest,
    "set_unit2": _largest,
    "farthest": min,
}


def _merged(merge: str, replies: list[Reply]) -> Reply:
    values = [reply.value for reply in replies if reply.value is not None]
    lost = tuple(site for reply in replies for site in reply.lost)
    together: Callable[[list[Any]], Any] = MERGES.get(merge, _all)
    return Reply(together(values) if values else None, lost)


# What runs on workers -----------------------------------------------------------------------------


def _answer(site: Site, ask: Ask, log: list[Ask] | None = None) -> Reply:
    known = site.at == ask.since or log is not None
    value = site.answer(ask, log)
    return Reply(value) if known else Reply(lost=(site.number,))


def _labels(site: Site, ask: Ask, log: list[Ask]) -> list[Labels]:
    labels: list[Labels] = site.answer(ask, log)
    return labels


def _item(items: list[Any], at: int) -> Any:
    return items[at]


def _hold(thing: Any) -> Any:
    """Workers pass it on among each other, and the scheduler can have it made again."""
    return thing


# The engine ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelling:
    """Labels where they are: futures per site, and of each block."""

    client: Any
    sites: list[Any]
    blocks: list[Any]
    lengths: list[int]

    def distinct(self) -> int:
        here = self.client.gather(self.client.map(_names, self.sites, pure=False))
        return len(np.unique(np.concatenate(here)))

    def same_clustering(self, other: Labelling, k: int) -> bool:
        """Equal but for the names of the clusters?"""
        named = self.client.map(_renaming, self.sites, other.sites, k=k, pure=False)
        name = np.full(k, -1, dtype=np.int32)
        for own in self.client.gather(named):
            if own is None:
                return False
            known = own >= 0
            if np.any((name[known] >= 0) & (name[known] != own[known])):
                return False
            name[known] = own[known]
        return True


def _names(labels: list[Labels]) -> Labels:
    return np.unique(np.concatenate(labels))


def _renaming(a: list[Labels], b: list[Labels], k: int) -> Labels | None:
    """Which label of b each of a stands for; None if there are several."""
    name = np.full(k, -1, dtype=np.int32)
    old, new = np.concatenate(a), np.concatenate(b)
    name[old] = new
    return name if np.array_equal(name[old], new) else None


class DaskEngine:
    """The rows of a fit, on the workers of a cluster."""

    streamed = False
    passes = unread = 0  # blocks stay where they are
    reading_bytes = 0

    def __init__(
        self,
        client: Any,
        chunks: list[Any],
        weights: list[Any] | None,
        *,
        dtype: np.dtype[Any] | None,
        n_jobs: int | None,
        metric: Metric,
        zero_rows: str,
    ) -> None:
        """`chunks`, `weights`: futures of the blocks of rows, and of their weights."""
        self._client = client
        self.n_jobs = _core.usable_cores()  # of this process, for what is O(k d)
        self._weighted = weights is not None
        self._counted: Double | None = None
        self.metric, self._zero_rows = metric, zero_rows
        self._at = -1
        self._log: list[Ask] = []  # what leads a new site to the present state
        self._followed: _core.Sums | None = None
        distributed.wait([*chunks, *(weights or [])])
        self._groups = _by_worker(client, chunks)
        self._sites = [
            client.submit(
                make_site,
                number,
                places,
                [chunks[place] for place in places],
                None if weights is None else [weights[place] for place in places],
                (dtype, n_jobs),
                workers=[worker],
                allow_other_workers=True,
                pure=False,
            )
            for number, (worker, places) in enumerate(self._groups)
        ]
        self._open(len(chunks))

    def _open(self, blocks: int) -> None:
        """Look at what the blocks are, agree on a dtype, and number the rows."""
        looks: list[Look | None] = [None] * blocks
        answers = self._client.gather(self._map(_look, self._sites))
        for (_, places), answer in zip(self._groups, answers, strict=True):
            for place, look in zip(places, answer, strict=True):
                looks[place] = look
        known = [look for look in looks if look is not None]
        full = [look for look in known if look.rows]
        if not full:
            raise ValueError("X must have rows, but Found array with 0 sample(s).")
        if len({look.columns for look in full}) > 1:
            wide = sorted({look.columns for look in full})
            raise ValueError(f"X must have blocks of one width, but they have {wide} columns.")
        if len({look.sparse for look in full}) > 1:
            raise ValueError("X must have blocks that are all dense or all sparse.")
        if self._weighted and not any(look.any_weight for look in full):
            raise ValueError("sample_weight must not be zero for every row.")
        self.d, self.sparse = full[0].columns, full[0].sparse
        self.dtype: np.dtype[Any] = np.result_type(*(look.dtype for look in full if look.dtype))
        self.lengths = [look.rows for look in known]
        self.begins = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.n = int(self.begins[-1])
        self.nonzeros = sum(look.values for look in full)
        kept = [
            (number, site, group)
            for number, (site, group) in enumerate(zip(self._sites, self._groups, strict=True))
            if any(self.lengths[place] for place in group[1])
        ]
        self._place = {number: at for at, (number, _, _) in enumerate(kept)}
        self._sites = [site for _, site, _ in kept]
        self._groups = [group for _, _, group in kept]
        self.most_rows = max(
            sum(self.lengths[place] for place in places) for _, places in self._groups
        )
        self._tell("open", self.dtype, self.begins, self.metric)

    # -- questions -----------------------------------------------------------------------------

    def _tell(self, what: str, *arguments: Any) -> Any:
        """A question that changes the state of the sites."""
        ask = Ask(what, arguments, self._at, self._at + 1)
        answer = self._put(ask)
        self._at = ask.until
        self._log.append(ask)
        return answer

    def _ask(self, what: str, *arguments: Any) -> Any:
        return self._put(Ask(what, arguments, self._at, self._at))

    def _put(self, ask: Ask) -> Any:
        merge = ask.arguments[0] if ask.what == "seed" else ask.what
        given: Any = ask
        if len(self._sites) * _size(ask) > _SMALL:
            given = self._held(ask)
        replies = self._map(_answer, self._sites, ask=given)
        reply = self._gather(merge, replies)
        if reply.lost:
            lost = [self._sites[self._place[number]] for number in reply.lost]
            again = self._map(_answer, lost, ask=given, log=self._held(self._log))
            reply = _merged(merge, [Reply(reply.value), self._gather(merge, again)])
        return reply.value

    def _held(self, thing: Any) -> Any:
        with warnings.catch_warnings():
            # Centres may be large, and go to the scheduler once.
            warnings.filterwarnings("ignore", "Sending large graph")
            return self._client.submit(_hold, thing, pure=False)

    def _map(self, work: Callable[..., Any], over: list[Any], **shared: Any) -> list[Any]:
        futures: list[Any] = self._client.map(work, over, pure=False, batch_size=None, **shared)
        return futures

    def _gather(self, merge: str, replies: list[Any]) -> Reply:
        """Put answers together where they are, then the last few here."""
        all_futures = list(replies)
        try:
            while len(replies) > _FAN_IN:
                batches = [replies[b : b + _FAN_IN] for b in range(0, len(replies), _FAN_IN)]
                replies = [
                    self._client.submit(_merged, merge, batch, pure=False) for batch in batches
                ]
                all_futures += replies
            return _merged(merge, self._client.gather(replies))
        except BaseException:  # Ctrl-C too
            self._client.cancel(all_futures)
            raise

    # -- before the first iteration ------------------------------------------------------------

    @property
    def weighted(self) -> bool:
        return self._weighted

    def counted(self) -> Double | None:
        """All weights in this process: only draws that scikit-learn makes, too, ask for them."""
        if self._counted is None and (self._weighted or self.metric.directed):
            pieces = sorted(self._ask("counted"), key=lambda piece: piece[0])
            self._counted = np.concatenate([weights for _, weights in pieces])
        return self._counted

    def keep(self, budget: float) -> int:
        return 0

    def examine(self) -> _core.Survey:
        survey = self.survey(weighted=False)
        refuse_nonfinite(survey)
        self._directions = self.n
        if self.metric.directed:
            lengths: Lengths = self._ask("lengths")
            lengths.refuse(self.n, self._zero_rows, self.metric.name)
            self._directions -= lengths.zeros
        return survey

    def directions(self) -> int:
        return self._directions

    def total_weight(self) -> float:
        blank, exported = self._ask("total_weight", self.weight_grid())
        sums = _core.Sums(*blank)
        sums.absorb(exported)
        return float(sums.weights[0])

    def survey(self, *, weighted: bool) -> _core.Survey:
        survey: _core.Survey = self._ask("survey", weighted)
        return survey

    def words_needed(self, grid: _core.Grid, *, weighted: bool) -> int:
        return int(self._ask("words_needed", grid, weighted))

    def weight_grid(self) -> _core.Grid:
        if not self._weighted:
            return _core.Grid(np.ones(1), self.n)
        grid = _core.Grid(np.array([self._ask("largest_weight")]), self.n)
        grid.words = self._ask("weight_words", grid)
        return grid

    def add_all(self, sums: _core.Sums, *, weighted: bool = False) -> None:
        sums.absorb(self._ask("add_all", sums.blank, weighted)[1])

    def scatter(self, points: Matrix, exponent: int, *, labelled: bool) -> tuple[float, float]:
        weighted, plain = self._ask("scatter", points, exponent, labelled)
        return weighted.value, plain.value

    def squares(self, point: Matrix, exponent: int) -> tuple[float, float]:
        weighted, plain = self._ask("squares", point, exponent)
        return weighted.value, plain.value

    def slots(self) -> NDArray[np.uint32] | None:
        return None  # sites have their own

    def pick(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their numbers, in the layout of the data."""
        found: list[Any] = self._ask("rows", ids)
        where = np.concatenate([at for at, _ in found])
        pieces = [rows for _, rows in found]
        rows = sp.vstack(pieces, format="csr") if self.sparse else np.concatenate(pieces)
        return rows[np.argsort(where)]

    def take(self, ids: NDArray[np.intp]) -> Matrix:
        """The same; sparse ones in canonical form, unit vectors where only directions count."""
        rows = self.pick(ids)
        if self.sparse:
            rows = sp.csr_array(rows)
            rows.has_sorted_indices = rows.has_canonical_format = False  # flags may be out of date
            rows.sum_duplicates()
        if self.metric.directed:
            normalise(rows)
        return rows

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> DaskSeeding:
        self._log = self._log[:1]
        return DaskSeeding(self, exponent, alpha)

    # -- an iteration --------------------------------------------------------------------------

    def agree(self, frame: Frame, grid: _core.Grid, weight_grid: _core.Grid) -> None:
        self._frame, self._grids = frame, (grid, weight_grid)

    def start(self, algorithm: str, k: int) -> None:
        self._k = k
        self._known: Matrix | None = None
        self._log = self._log[:1]
        self._tell("begin", algorithm, self._frame, (k, self.d, *self._grids, self.sparse))

    def follow(self, sums: _core.Sums | None) -> None:
        self._followed = sums

    def use(self, algorithm: str) -> None:
        self._tell("use", algorithm)
        begin = self._log[1]
        self._log[1] = replace(begin, arguments=(algorithm, *begin.arguments[1:]))

    def assign(self, centroids: _core.Centroids) -> Tally:
        """Label every row; the sums follow."""
        now = from_core(centroids.centres, (self._k, self.d))
        if self._known is None:
            centres = Centres(now, None, centroids.given_norms2)
        else:
            moved = _different(self._known, now)
            centres = Centres(now[moved], moved)
        tally, _, exported = self._tell("assign", centres)
        # Whoever has to begin again needs no more than the labels by these centres.
        whole = centres if self._known is None else Centres(now)
        begun = self._log[:2]
        self._log = [*begun, Ask("assign", (whole,), begun[-1].until, self._at)]
        self._known = now
        if self._followed is not None:
            self._followed.absorb(exported)
        result: Tally = tally
        return result

    def sum_up(self, sums: _core.Sums, changed: int) -> None:
        """They have followed."""

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        sums.absorb(self._ask("move_row", row, source, target)[1])

    def moved(self, movement: _core.Movement) -> None:
        """Sites find out themselves when they are shown the centres."""

    def far_rows(self, centres: Matrix, exponent: int) -> Iterator[FarRow]:
        count, given = 64, 0
        while True:
            found: list[FarRow] = self._ask("far_rows", centres, exponent, count)
            found.sort(key=lambda far: (-far.distance2, far.row))
            # Beyond the first `count` of all, some site may have had more to offer.
            yield from found[given:count]
            if len(found) < count:
                return
            given, count = count, 8 * count

    def labels(self) -> Labelling:
        """Left where they are; made again from the centres if they get lost."""
        ask = Ask("labels", (), self._at, self._at)
        log = self._held(self._log)
        sites = self._map(_labels, self._sites, ask=ask, log=log)
        distributed.wait(sites)  # before anything else changes the state
        blocks: list[Any] = [np.empty(0, dtype=np.int32)] * len(self.lengths)
        for (_, places), site in zip(self._groups, sites, strict=True):
            for at, place in enumerate(places):
                blocks[place] = self._client.submit(_item, site, at, pure=False)
        return Labelling(self._client, sites, blocks, self.lengths)

    def fingerprint(self) -> str:
        raise NotImplementedError

    def close(self) -> None:
        """Let the workers forget."""
        self._sites = []


def _look(site: Site) -> list[Look]:
    return site.looks


def _size(ask: Ask) -> int:
    """About how many bytes a question takes."""
    given = [a.rows if isinstance(a, Centres) else a for a in ask.arguments]
    return sum(bytes_of(a) for a in given if isinstance(a, np.ndarray) or sp.issparse(a))


def _different(a: Matrix, b: Matrix) -> NDArray[np.intp]:
    """Rows of which a bit differs."""
    if isinstance(a, np.ndarray):
        bits = f"u{a.itemsize}"
        return np.flatnonzero((a.view(bits) != b.view(bits)).any(axis=1))
    return np.array(
        [
            j
            for j in range(a.shape[0])
            if not all(
                np.array_equal(x[a.indptr[j] : a.indptr[j + 1]], y[b.indptr[j] : b.indptr[j + 1]])
                for x, y in ((a.indices, b.indices), (a.data, b.data))
            )
        ],
        dtype=np.intp,
    )


def _by_worker(client: Any, chunks: list[Any]) -> list[tuple[str, list[int]]]:
    """Which blocks go to which worker: where they are, unless that has far more than its share."""
    threads: dict[str, int] = client.nthreads()
    holders: dict[Any, Any] = client.who_has(chunks)
    share = len(chunks) / sum(threads.values())
    groups: dict[str, list[int]] = {}
    for place, chunk in enumerate(chunks):

        def load(worker: str) -> tuple[float, str]:
            return len(groups.get(worker, ())) / threads[worker], worker

        here = [worker for worker in holders.get(chunk.key, ()) if worker in threads]
        best = min(here or threads, key=load)
        if load(best)[0] >= 1.25 * share + 1 / threads[best]:
            best = min(threads, key=load)
        groups.setdefault(best, []).append(place)
    return sorted(groups.items())

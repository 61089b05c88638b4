"""Whose time counts beside ours, by the answers that they give."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.peers import Fitted
from benchmarks.race import judge
from benchmarks.suites import Case
from benchmarks.worker import Answer, measured

LABELS = np.arange(1000) % 7
OTHERS = np.roll(LABELS, 1)
OURS = Answer(LABELS, 100.0, 20)


def case(dtype: str = "float32", init: str = "rows") -> Case:
    return Case("normal-1000x3", 7, dtype, ("scikit-learn",), init=init, iters=(2, 20))


@pytest.mark.parametrize("labels", [LABELS, OTHERS])
@pytest.mark.parametrize(
    ("inertia", "counts", "says"),
    [(100.05, True, ""), (110.0, True, "worse answer"), (90.0, False, "other answer")],
)
def test_a_time_counts_unless_the_answer_is_better(
    labels: np.ndarray, inertia: float, counts: bool, says: str
) -> None:
    verdict = judge(case(), Answer(labels, inertia, 20), OURS)
    assert verdict.counts == counts
    assert verdict.note.startswith(says)
    assert bool(verdict.note) == bool(says)
    assert verdict.better == (inertia < 99)


def test_the_note_says_by_how_much_an_answer_is_worse() -> None:
    assert "+1.00e-01" in judge(case(), Answer(OTHERS, 110.0, 20), OURS).note


def test_in_float64_other_labels_must_not_be_better_at_all() -> None:
    assert not judge(case("float64"), Answer(OTHERS, 100.0 - 1e-9, 20), OURS).counts
    assert judge(case("float64"), Answer(OTHERS, 100.0 + 1e-9, 20), OURS).counts


def test_a_fit_that_stopped_before_the_limit_does_not_count() -> None:
    verdict = judge(case(), Answer(LABELS, 100.0, 12), OURS)
    assert not verdict.counts
    assert "12 iterations, not 20" in verdict.note
    assert judge(case(), Answer(LABELS, 90.0, 12), OURS).better


@pytest.mark.parametrize("inertia", [90.0, 110.0])
def test_from_seeds_of_their_own_a_worse_answer_is_luck(inertia: float) -> None:
    assert not judge(case(init="k-means++"), Answer(OTHERS, inertia, 20), OURS).counts


def test_labels_alone_are_compared_where_there_is_no_inertia() -> None:
    ours = Answer(LABELS, 0.0, None)
    assert judge(case(), Answer(LABELS, 0.0, None), ours).counts
    assert not judge(case(), Answer(OTHERS, 0.0, None), ours).counts


def test_inertia_is_measured_in_float64_by_differences() -> None:
    X = np.array([[1e9, 0.0], [1e9, 1.0], [0.0, 3.0]], dtype=np.float32)
    C = np.array([[1e9, 0.5], [0.0, 3.0]])
    assert measured(X, Fitted(None, C)).inertia == 0.5

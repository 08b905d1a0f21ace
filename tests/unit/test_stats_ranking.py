"""Bradley-Terry strengths: against choix, closed forms, and simulated competitors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import choix
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from ragassay.errors import NotEstimable
from ragassay.stats.ranking import (
    components,
    connected,
    count_wins,
    dominance_classes,
    fit,
    ranks,
    round_gradient,
    round_log_likelihood,
    solve,
    win_probability,
)
from ragassay.stats.ranking_certainty import Ranking, StoppingRule, decide, rank
from ragassay.stats.ranking_online import (
    converged,
    online_path,
    online_update,
    slope,
    stable_rounds,
)

Floats = NDArray[np.float64]
SEVEN = np.array([1.7, 0.1, -0.2, -0.1, -0.4, -0.5, -0.6])
SEVEN = SEVEN - SEVEN.mean()


def random_wins(seed: int, n: int, most: int = 6) -> Floats:
    """Whole numbers of wins, in which everybody has beaten somebody and lost to somebody."""
    rng = np.random.default_rng(seed)
    wins = rng.integers(0, most, (n, n)).astype(float)
    around = np.arange(n)
    wins[around, (around + 1) % n] += 1
    np.fill_diagonal(wins, 0)
    return wins


def listed(wins: Floats) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i, j in itertools.product(range(len(wins)), repeat=2)
        for _ in range(int(wins[i, j]))
    ]


def played(
    theta: Floats, rng: np.random.Generator, *, queries: int, rounds: int, copies: int = 1
) -> Floats:
    """Wins per query of rounds of 2 to n competitors with one winner each, drawn by strength.

    ``copies`` repeats each outcome within its query, as equal contexts give equal answers.
    """
    n = len(theta)
    size = rng.integers(2, n + 1, (queries, rounds, 1))
    takes_part = np.argsort(np.argsort(rng.random((queries, rounds, n)))) < size
    luck = theta - np.log(-np.log(rng.random((queries, rounds, n))))
    winner = np.argmax(np.where(takes_part, luck, -np.inf), axis=2)
    wins = np.zeros((queries, n, n))
    for i in range(n):
        beaten = takes_part & (winner == i)[:, :, None]
        wins[:, i] = copies * beaten.sum(axis=1)
        wins[:, i, i] = 0
    return wins


# ---------------------------------------------------------------------------- the likelihood


def test_the_gradient_is_the_derivative_of_the_likelihood() -> None:
    theta = np.array([0.7, -0.2, 0.1, 1.5])
    for won, lost in (([0, 2], [1, 3]), ([3], [0, 1]), ([0, 1, 2], [3])):
        numeric = approx_fprime(theta, lambda t, w=won, v=lost: round_log_likelihood(t, w, v), 1e-7)
        assert round_gradient(theta, won, lost) == pytest.approx(numeric, abs=1e-6)
        assert round_gradient(theta, won, lost).sum() == pytest.approx(0, abs=1e-15)


def test_the_printed_loser_gradient_is_not_the_derivative() -> None:
    printed = round_gradient([1.0, 0.0], [0], [1], rule="printed")
    assert printed.sum() == pytest.approx(-0.46211716, abs=1e-8)


@pytest.mark.parametrize(("won", "lost"), [([], [0, 1]), ([0, 1], []), ([], [])])
def test_a_round_without_winners_or_losers_says_nothing(
    won: Sequence[int], lost: Sequence[int]
) -> None:
    assert round_log_likelihood([0.3, 0.1], won, lost) == 0
    assert round_gradient([0.3, 0.1], won, lost).tolist() == [0, 0]
    assert count_wins(2, [(won, lost)]).sum() == 0
    for rule in ("batch", "printed", "sequential"):
        assert online_update([0.3, 0.1], won, lost, rule=rule).tolist() == [0.3, 0.1]


def test_winners_of_one_round_do_not_beat_each_other() -> None:
    wins = count_wins(4, [([0, 1], [2, 3]), ([2], [0])], weights=[1.0, 0.5])
    expected = np.zeros((4, 4))
    expected[[0, 0, 1, 1], [2, 3, 2, 3]] = 1
    expected[2, 0] = 0.5
    assert wins.tolist() == expected.tolist()


@pytest.mark.parametrize(("won", "lost"), [([0], [0]), ([0, 0], [1]), ([0], [2]), ([-1], [0])])
def test_an_impossible_round_is_refused(won: list[int], lost: list[int]) -> None:
    with pytest.raises(ValueError, match=r"stands twice|places from 0 to 1"):
        count_wins(2, [(won, lost)])


def test_rounds_and_weights_of_different_number_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        count_wins(2, [([0], [1])], weights=[])


# ------------------------------------------------------------------------------ the estimate


@pytest.mark.parametrize("seed", range(12))
def test_plain_maximum_likelihood_equals_choix(seed: int) -> None:
    wins = random_wins(seed, n=2 + seed % 8)
    assert fit(wins, prior_sd=None) == pytest.approx(
        choix.ilsr_pairwise(len(wins), listed(wins), max_iter=10_000, tol=1e-12), abs=1e-6
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_penalized_estimate_equals_choix(seed: int) -> None:
    """The penalty of choix is alpha times the sum of squares, ours that sum over 2 sd^2."""
    wins = random_wins(seed, n=2 + seed % 8)
    sd = 0.3 + seed % 4
    theirs = choix.opt_pairwise(len(wins), listed(wins), alpha=1 / (2 * sd**2), tol=1e-12)
    assert fit(wins, prior_sd=sd) == pytest.approx(theirs, abs=1e-6)


def test_two_competitors_have_their_log_odds() -> None:
    assert fit([[0, 30], [10, 0]], prior_sd=None) == pytest.approx(
        np.log(3) / 2 * np.array([1, -1])
    )


def test_strengths_sum_to_zero_and_do_not_depend_on_the_order_of_competitors() -> None:
    wins = random_wins(5, n=6)
    shuffled = np.array([3, 1, 5, 0, 2, 4])
    found = fit(wins)
    assert found.sum() == pytest.approx(0, abs=1e-12)
    assert fit(wins[np.ix_(shuffled, shuffled)]) == pytest.approx(found[shuffled], abs=1e-9)


def test_a_winner_of_everything_is_infinite_without_a_prior_and_finite_with_one() -> None:
    wins = [[0, 5, 5], [0, 0, 2], [0, 1, 0]]
    with pytest.raises(NotEstimable, match=r"between the classes \{0\} and \{1, 2\}"):
        fit(wins, prior_sd=None)
    found = fit(wins)
    assert found[0] > 1
    assert np.isfinite(found).all()
    assert found[0] < fit(wins, prior_sd=10)[0]


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-3])
def test_extreme_counts_converge(scale: float) -> None:
    wins = np.zeros((5, 5))
    wins[0, 1:] = 1000
    wins[1, 2:] = 1000
    wins[3, 4] = 1
    found = fit(wins * scale)
    gradient = np.array(
        [
            sum(
                wins[i, j] * scale * win_probability(found[j], found[i])
                - wins[j, i] * scale * win_probability(found[i], found[j])
                for j in range(5)
            )
            for i in range(5)
        ]
    )
    assert gradient - found / 9 == pytest.approx(np.zeros(5), abs=1e-7 * max(1, scale))


def test_groups_that_never_met_are_named_and_not_compared() -> None:
    wins = np.zeros((4, 4))
    wins[0, 2] = wins[2, 0] = wins[1, 3] = 1
    assert components(wins) == [(0, 2), (1, 3)]
    with pytest.raises(NotEstimable, match=r"the groups \{0, 2\} and \{1, 3\} never met"):
        fit(wins)


def test_somebody_without_a_decided_round_is_a_group_alone() -> None:
    assert components(np.zeros((3, 3))) == [(0,), (1,), (2,)]
    with pytest.raises(NotEstimable):
        fit([[0, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_a_long_chain_is_connected_but_not_strongly() -> None:
    n = 33
    chain = np.diag(np.ones(n - 1), 1)
    assert components(chain) == [tuple(range(n))]
    assert dominance_classes(chain) == [(i,) for i in range(n)]
    ring = chain.copy()
    ring[-1, 0] = 1
    assert dominance_classes(ring) == [tuple(range(n))]
    assert connected(np.stack([chain, np.zeros((n, n))])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("wins", "message"),
    [
        ([[0, 1]], "shape"),
        (np.zeros((0, 0)), "shape"),
        ([[0, -1], [0, 0]], "not below 0"),
        ([[0, np.nan], [0, 0]], "finite"),
        ([[1, 1], [1, 0]], "diagonal"),
    ],
)
def test_impossible_tables_are_refused(wins: Floats, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(wins)


@pytest.mark.parametrize("sd", [0.0, -1.0, np.nan, np.inf])
def test_an_impossible_prior_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match="prior_sd"):
        fit([[0, 1], [1, 0]], prior_sd=sd)


def test_many_problems_at_once_give_the_same_as_one_by_one() -> None:
    tables = np.stack([random_wins(seed, n=5) for seed in range(30)])
    together = solve(tables, 1 / 9, np.zeros((30, 5)))
    assert together == pytest.approx(np.array([fit(table) for table in tables]), abs=1e-9)


def test_equal_strengths_rank_by_name() -> None:
    assert ranks([0.0, 0.0, 1.0, 0.0]).tolist() == [2, 3, 1, 4]
    assert ranks([[0.0, 1.0], [1.0, 0.0]]).tolist() == [[2, 1], [1, 2]]


# ---------------------------------------------------------------------------- the uncertainty


def test_intervals_of_simulated_competitors_cover_their_strengths() -> None:
    """95 % intervals over 200 simulations of 7 competitors in 100 queries, outcomes in threes."""
    covered = np.zeros((200, 7), dtype=bool)
    for k in range(200):
        rng = np.random.default_rng([6, k])
        wins = played(SEVEN, rng, queries=100, rounds=10, copies=3)
        found = rank(wins, rng=rng, draws=300)
        covered[k] = [
            interval is not None and interval.low <= true <= interval.high
            for interval, true in zip(found.theta_intervals, SEVEN, strict=True)
        ]
    assert 0.92 <= covered.mean() <= 0.98
    assert covered.mean(axis=0).min() > 0.89  # 4 standard errors below 0.95


def test_copies_within_a_query_do_not_narrow_the_intervals() -> None:
    """The same outcomes once or five times in their query: no more is known."""
    once = played(SEVEN, np.random.default_rng(3), queries=100, rounds=10)
    seed = 11
    widths = [
        [i.high - i.low for i in rank(w, rng=np.random.default_rng(seed)).theta_intervals if i]
        for w in (once, 5 * once)
    ]
    assert len(widths[0]) == 7
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_a_resample_is_the_estimate_of_its_queries() -> None:
    wins = played(SEVEN, np.random.default_rng(2), queries=12, rounds=20)
    found = rank(wins, rng=np.random.default_rng(9), draws=40)
    times = np.random.default_rng(9).multinomial(12, np.full(12, 1 / 12), size=40)
    expected = [fit((t[:, None, None] * wins).sum(axis=0)) for t in times]
    assert found.unusable == 0
    assert found.draws == pytest.approx(np.array(expected), abs=1e-8)
    assert found.theta == pytest.approx(fit(wins.sum(axis=0)), abs=1e-12)


def test_rank_intervals_are_whole_ranks_around_the_estimate() -> None:
    found = rank(
        played(SEVEN, np.random.default_rng(1), queries=100, rounds=40),
        rng=np.random.default_rng(2),
    )
    assert found.ranks[0] == 1
    assert found.rank_intervals[0] is not None
    assert (found.rank_intervals[0].low, found.rank_intervals[0].high) == (1.0, 1.0)
    for interval, place in zip(found.rank_intervals, found.ranks, strict=True):
        assert interval is not None
        assert interval.low <= place <= interval.high
        assert float(interval.low).is_integer()
        assert float(interval.high).is_integer()
    shares = found.rank_probabilities
    assert shares is not None
    assert shares.sum(axis=0) == pytest.approx(np.ones(7))
    assert shares.sum(axis=1) == pytest.approx(np.ones(7))


def test_superiority_is_complementary_and_follows_the_strengths() -> None:
    found = rank(
        played(SEVEN, np.random.default_rng(1), queries=60, rounds=30),
        rng=np.random.default_rng(2),
    )
    share = found.superiority
    assert share is not None
    assert share + share.T == pytest.approx(np.ones((7, 7)))
    assert share[0, 1:].min() == 1
    beats = found.win_probabilities
    assert beats[0, 6] == pytest.approx(float(win_probability(found.theta[0], found.theta[6])))
    interval = found.win_probability_intervals[0][6]
    assert interval is not None
    assert interval.low < beats[0, 6] < interval.high


def test_one_query_gives_an_estimate_without_intervals() -> None:
    found = rank(random_wins(1, 4)[None], rng=np.random.default_rng(0))
    assert not found.estimable
    assert found.theta_intervals == [None] * 4
    assert found.rank_intervals == [None] * 4
    assert found.superiority is None
    assert found.same_order is None
    assert found.rank_probabilities is None
    assert len(found.undecided(0.95)) == 3


def test_resamples_that_connect_nobody_are_counted_and_left_out() -> None:
    """Competitor 2 met the others in one query of four only."""
    wins = np.zeros((4, 3, 3))
    wins[:, 0, 1] = 2
    wins[:, 1, 0] = 1
    wins[3, 2, 0] = wins[3, 0, 2] = 1
    found = rank(wins, rng=np.random.default_rng(0), draws=2_000)
    assert found.unusable == pytest.approx(2_000 * 0.75**4, abs=120)
    assert found.unusable + len(found.draws) == 2_000
    assert found.estimable
    everything = np.zeros((2, 3, 3))
    everything[0, 0, 1] = everything[0, 1, 0] = everything[1, 1, 2] = everything[1, 2, 1] = 1
    halves = rank(everything, rng=np.random.default_rng(0), draws=400)
    assert halves.unusable == pytest.approx(200, abs=50)


def test_too_few_usable_resamples_give_no_intervals() -> None:
    """Of five competitors each met the next in a query of its own."""
    wins = np.zeros((4, 5, 5))
    for q in range(4):
        wins[q, q, q + 1] = wins[q, q + 1, q] = 1
    found = rank(wins, rng=np.random.default_rng(0), draws=300)
    assert found.unusable > 200
    assert found.theta_intervals == [None] * 5


@pytest.mark.parametrize("draws", [0, -1])
def test_an_impossible_number_of_draws_is_refused(draws: int) -> None:
    with pytest.raises(ValueError, match="draws"):
        rank(random_wins(1, 3)[None], rng=np.random.default_rng(0), draws=draws)
    with pytest.raises(ValueError, match="shape"):
        rank(random_wins(1, 3), rng=np.random.default_rng(0))


# ------------------------------------------------------------------------- online, and stopping


def test_the_correct_rule_keeps_the_sum_and_the_printed_rule_drifts() -> None:
    rng = np.random.default_rng(4)
    rounds = []
    for _ in range(1_000):
        some = rng.permutation(7)[: rng.integers(2, 7)]
        best = some[np.argmax(SEVEN[some] - np.log(-np.log(rng.random(len(some)))))]
        rounds.append(([int(best)], [int(i) for i in some if i != best]))
    right = online_path(7, rounds)
    assert right.sum(axis=1) == pytest.approx(np.zeros(1_000), abs=1e-12)
    printed = online_path(7, rounds, rule="printed")
    assert printed[-1].sum() < -5
    assert printed[-1].sum() < printed[499].sum() < 0
    assert ranks(right[-1])[0] == 1


def test_the_online_estimate_approaches_the_maximum_likelihood_one() -> None:
    wins = np.array([[0, 3, 4], [1, 0, 2], [1, 1, 0]])
    rounds = [([i], [j]) for i, j in listed(wins)]
    path = online_path(3, rounds * 2_000, rate=0.01)
    assert path[-1] == pytest.approx(fit(wins, prior_sd=None), abs=0.05)


def test_the_order_of_pairs_matters_in_the_released_update_only() -> None:
    theta = [0.5, 0.0, -0.5, 0.0]
    forward = online_update(theta, [0, 1], [2, 3], rule="sequential")
    backward = online_update(theta, [1, 0], [3, 2], rule="sequential")
    assert np.abs(forward - backward).max() > 1e-8
    assert forward == pytest.approx(online_update(theta, [0, 1], [2, 3]), abs=1e-4)
    assert (online_update(theta, [1, 0], [3, 2]) == online_update(theta, [0, 1], [2, 3])).all()


def test_an_empty_history_is_not_stable() -> None:
    assert online_path(3, []).shape == (0, 3)
    assert stable_rounds([]) == 0
    assert not converged([], 1)
    with pytest.raises(ValueError, match="r >= 1"):
        converged([[1, 2]], 0)


def test_an_order_that_comes_back_counts_from_then_on() -> None:
    assert stable_rounds([[1, 2], [2, 1], [1, 2], [1, 2]]) == 2


def test_the_slope_of_the_last_rounds() -> None:
    path = np.stack([np.r_[np.zeros(50), np.arange(100) * 0.02], np.zeros(150)], axis=1)
    assert slope(path) == pytest.approx([0.02, 0.0])
    assert slope(path[:1]) is None


def ranking(certain: bool, *, n: int = 3, resamples: int = 100) -> Ranking:
    """A ranking whose first pair is stronger in all resamples, or in 80 of 100."""
    draws = np.tile(np.arange(n, 0, -1.0), (resamples, 1))
    if not certain:
        draws[:20, :2] = draws[:20, 1::-1]
    theta = np.arange(n, 0, -1.0)
    return Ranking(theta, ranks(theta), 10, draws, 0, 0.95)


@pytest.mark.parametrize(
    ("rounds", "fewest", "stable", "certain", "stop", "reason"),
    [
        (499, 500, 499, True, False, "499 of at least 500 rounds"),
        (900, 99, 800, True, False, "took part in 99 of 100"),
        (900, 500, 199, True, False, "stable for 199 of 200"),
        (900, 500, 200, False, False, "1 pairs of neighbors are not decided"),
        (900, 500, 200, True, True, "stable for 200 rounds"),
        (4_000, 5, 0, False, True, "limit of 4000"),
    ],
)
def test_the_stopping_rule_says_why(
    rounds: int, fewest: int, stable: int, certain: bool, stop: bool, reason: str
) -> None:
    found = decide(
        StoppingRule(),
        rounds=rounds,
        participations=[600, fewest, 700],
        stable=stable,
        ranking=ranking(certain),
    )
    assert (found.stop, reason in found.reason) == (stop, True)
    assert found.undecided == (() if certain else ((0, 1),))
    assert found.same_order == (1.0 if certain else 0.8)

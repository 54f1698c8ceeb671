"""The paper's theorems: computed by hand, exactly on finite distributions, and where their wording is false."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction as F
from itertools import combinations, pairwise

import pytest
import torch

from lotnet.errors import InputError
from lotnet.paper.newton_bound import newton_iterates
from lotnet.paper.theorems import certified_radius_bound, error_bound, fewest_steps, loss_bound, newton_error_bound

HALF = F(1, 2)


@dataclass(frozen=True)
class Finite:
    """A binary task on finitely many points. Points of weight zero are off the support, but can lie in balls."""

    weight: tuple[F, ...]
    truth: tuple[int, ...]
    labels: tuple[int, ...]
    """G_pl."""
    balls: tuple[frozenset[int], ...]
    """B(x) for each x; x' is a neighbour of x if their balls meet."""

    @property
    def points(self) -> range:
        return range(len(self.weight))

    def probability(self, points: frozenset[int] | set[int]) -> F:
        return sum((self.weight[x] for x in points), F(0))

    def neighbourhood(self, points: frozenset[int] | set[int]) -> frozenset[int]:
        reached = frozenset().union(*(self.balls[x] for x in points))
        return frozenset(x for x in self.points if reached & self.balls[x])

    def mistakes(self) -> frozenset[int]:
        return frozenset(x for x in self.points if self.truth[x] != self.labels[x])

    def classes(self) -> list[frozenset[int]]:
        """Points of positive weight, by class."""
        return [frozenset(x for x in self.points if self.truth[x] == i and self.weight[x]) for i in (0, 1)]

    def largest_mistake(self) -> F:
        """The paper's a-bar."""
        return max(self.probability(self.mistakes() & each) / self.probability(each) for each in self.classes() if each)

    def expansion(self, strict: bool = False, classwise: bool = True) -> F:
        """The paper's c: the largest factor by which all sets of size up to (strictly: below) a-bar expand. It is at
        most 1/a-bar.

        Sets inside one class suffice: points of other classes add to the neighbourhood and not to the probability.
        """
        a = self.largest_mistake()
        c = 1 / a
        support = frozenset().union(*self.classes())
        for each in self.classes() if classwise else [support]:
            total = self.probability(each)
            for size in range(1, len(each) + 1):
                for chosen in combinations(sorted(each), size):
                    p = self.probability(set(chosen)) / total
                    if p < a or (p == a and not strict):
                        around = self.probability(self.neighbourhood(set(chosen)) & each) / total
                        c = c if around == 1 else min(c, around / p)
        return c

    def consistent(self, g: tuple[F, ...], delta: F) -> frozenset[int]:
        def keeps(x: int) -> bool:
            return all(
                g[x] >= (1 - delta) * g[z] and 1 - g[x] >= (1 - delta) * (1 - g[z]) for z in sorted(self.balls[x])
            )

        return frozenset(x for x in self.points if keeps(x))

    def consistency(self, g: tuple[F, ...], delta: F) -> F:
        return 1 - self.probability(self.consistent(g, delta))

    def loss(self, g: tuple[F, ...], other: tuple[int, ...]) -> F:
        return sum((w * abs(a - b) for w, a, b in zip(self.weight, g, other, strict=True)), F(0))

    def error(self, g: tuple[F, ...]) -> F:
        return self.loss(g, self.truth)

    def mean_loss(self, g: tuple[F, ...], points: frozenset[int]) -> F:
        return sum((self.weight[x] * abs(g[x] - self.truth[x]) for x in points), F(0)) / self.probability(points)

    @property
    def labeler_error(self) -> F:
        return self.probability(self.mistakes())

    def bound(self, g: tuple[F, ...], c: F, delta: F) -> F:
        return loss_bound(c, self.loss(g, self.labels), self.consistency(g, delta), self.labeler_error, delta)


def fractions(values: tuple[int, ...]) -> tuple[F, ...]:
    return tuple(F(value) for value in values)


def uniform(truth: tuple[int, ...], labels: tuple[int, ...], groups: list[set[int]], off_support: int = 0) -> Finite:
    """Points of equal weight, each with the ball of all groups it is in (at least itself)."""
    n = len(truth)
    balls = tuple(frozenset({x}.union(*(group for group in groups if x in group))) for x in range(n))
    weight = (F(1, n - off_support),) * (n - off_support) + (F(0),) * off_support
    return Finite(weight, truth, labels, balls)


def random_distribution(rng: random.Random) -> tuple[Finite, F]:
    """Draw a task until it meets the assumptions; return it with its c. Balls meet mostly off the support."""
    while True:
        n, hubs = rng.randint(4, 8), rng.randint(1, 4)
        truth = tuple(int(x >= (n if rng.random() < 0.3 else n - rng.randint(0, 4))) for x in range(n))
        share = [rng.randint(1, 6) for _ in range(n)]
        weight = tuple(F(s, sum(share)) for s in share) + (F(0),) * hubs
        wrong = set(rng.sample(range(n), rng.choice((1, 1, 2))))
        labels = tuple(t ^ (x in wrong) for x, t in enumerate(truth))
        density = rng.uniform(0.3, 1)
        balls = [
            frozenset({x, *(h for h in range(n, n + hubs) if rng.random() < density), *rng.sample(range(n), 1)})
            if rng.random() < 0.3
            else frozenset({x, *(h for h in range(n, n + hubs) if rng.random() < density)})
            for x in range(n)
        ]
        balls += [frozenset({h}) for h in range(n, n + hubs)]
        task = Finite(weight, truth + (0,) * hubs, labels + (0,) * hubs, tuple(balls))
        if 0 < task.largest_mistake() < F(1, 3) and (c := task.expansion()) > 3:
            return task, c


def hostile_students(task: Finite, c: F, delta: F, rng: random.Random) -> list[tuple[F, F, tuple[F, ...]]]:
    """(error, bound, G) of students chosen for a large error and a small bound: the labeller, and a hill climb."""

    def judged(g: tuple[F, ...]) -> tuple[F, F, tuple[F, ...]]:
        return task.error(g), task.bound(g, c, delta), g

    def excess(student: tuple[F, F, tuple[F, ...]]) -> F:
        return student[0] - student[1]

    levels = (F(0), delta / 2, delta, HALF, 1 - delta, F(1), F(rng.randint(0, 12), 12))
    level = rng.choice(levels)
    found = [judged(fractions(task.labels)), judged(tuple(level for _ in task.points))]
    for _ in range(6):
        changed = list(max(found, key=excess)[2])
        changed[rng.randrange(len(changed))] = rng.choice(levels)
        found.append(judged(tuple(changed)))
    return found


def check_the_steps(task: Finite, g: tuple[F, ...], c: F, delta: F) -> None:
    """Check the steps of the proofs: the paper's first lemma, and L(S_2) >= (c - 1) L(S_1) - P(S_1) - R, which repairs
    the second."""
    consistent, wrong = task.consistent(g, delta), task.mistakes()
    losses = {x: task.weight[x] * abs(g[x] - task.truth[x]) for x in consistent}
    l1 = sum((loss for x, loss in losses.items() if x in wrong), F(0))
    l2 = sum((loss for x, loss in losses.items() if x not in wrong), F(0))
    p1, r = task.probability(consistent & wrong), task.consistency(g, delta)
    assert l2 + p1 == l1 + sum((task.weight[x] * abs(g[x] - task.labels[x]) for x in consistent), F(0))
    assert l2 <= l1 + task.loss(g, task.labels) - task.labeler_error + r
    assert l2 >= (c - 1) * l1 - p1 - r


def second_lemma(task: Finite, g: tuple[F, ...], c: F, delta: F) -> tuple[bool, F]:
    """(whether the paper's condition is met, the largest error that the lemma allows), with the smallest beta."""
    fit, r = task.loss(g, task.labels), task.consistency(g, delta)
    weighted = fit + 2 * r  # beta times the labeller's error
    claimed = 2 * (weighted / (c - 1) + r) + fit - task.labeler_error
    return 0 < weighted <= (c - 1) / 2 * task.labeler_error, claimed


def test_the_main_lemma_and_theorem_2_hold_on_random_finite_distributions() -> None:
    rng = random.Random(0)
    telling = 0
    for _ in range(1000):
        task, c = random_distribution(rng)
        delta = rng.choice((F(0), 1 / (2 * c), 1 / c))
        students = hostile_students(task, c, delta, rng)
        assert all(error <= bound for error, bound, _ in students), (task, delta)
        telling += any(bound < 1 for _, bound, _ in students)
        check_the_steps(task, students[-1][2], c, delta)
        if delta == 0:  # then the paper's second lemma is true without its condition
            assert all(error <= second_lemma(task, g, c, delta)[1] for error, _, g in students)
        # Theorem 2: the minimiser's bound is at most the bound of the true labels, which the theorem states.
        truth = fractions(task.truth)
        mu = task.consistency(truth, F(0))
        assert task.bound(truth, c, delta) == error_bound(c, mu, task.labeler_error)
    assert telling > 500  # an error is at most one: a larger bound would be vacuous


def test_the_search_finds_violations() -> None:
    """Where nothing expands but c is claimed to be 1/a-bar, it finds a violation every time."""
    rng = random.Random(1)
    for _ in range(50):
        task, _ = random_distribution(rng)
        alone = replace(task, balls=tuple(frozenset({x}) for x in task.points))
        students = hostile_students(alone, 1 / alone.largest_mistake(), F(0), rng)
        assert any(error > bound for error, bound, _ in students)


# Seven isolated points, the first of them mislabelled. Six are of class 0, so a-bar is 1/6, and no set of positive
# probability is below it: with `P_i(V) < a` the expansion is vacuous and c = 6.
ISOLATED = uniform((0, 0, 0, 0, 0, 0, 1), (1, 0, 0, 0, 0, 0, 1), [])


def test_with_strict_expansion_the_lemma_and_theorem_2_are_false() -> None:
    c, student = ISOLATED.expansion(strict=True), fractions(ISOLATED.labels)
    assert c == 6
    assert ISOLATED.error(student) == F(1, 7)
    assert ISOLATED.bound(student, c, F(0)) == F(-1, 7)  # the least L(G) there can be: the student is a minimiser
    assert ISOLATED.consistency(fractions(ISOLATED.truth), F(0)) == 0
    assert error_bound(c, F(0), ISOLATED.labeler_error) == F(4, 35) < ISOLATED.error(student)
    assert ISOLATED.expansion() == 1  # with `P_i(V) <= a` the assumption fails, as it must


def test_with_expansion_of_the_mixture_the_lemma_is_false() -> None:
    """The proof uses P(N(V)) >= c P(V). This does not see a mistake whose neighbours are all of the other class."""
    truth, labels = (0, 0, 0, 0, 0, 1, 1, 1, 1), (1, 0, 0, 0, 0, 1, 1, 1, 1)
    task = uniform(truth, labels, [{1, 2, 3, 4}, {0, 5, 6, 7, 8}])
    c, student = task.expansion(classwise=False), fractions(labels)
    assert c == 4
    assert task.consistency(student, F(0)) == 0
    assert task.error(student) == F(1, 9)
    assert task.bound(student, c, F(0)) == F(-1, 9)
    assert task.expansion() == 1


def four_around_one() -> Finite:
    """Four points of class 0 whose balls share one point off the support; the first is mislabelled."""
    task = uniform((0, 0, 0, 0, 0), (1, 0, 0, 0, 0), [{0, 4}, {1, 4}, {2, 4}, {3, 4}], off_support=1)
    return replace(task, balls=(*task.balls[:4], frozenset({4})))


def test_a_step_of_the_proof_is_false_where_the_lemma_is_true() -> None:
    """The student is 1/4 at the mistake and 0 elsewhere."""
    task = four_around_one()
    student, delta = (F(1, 4), F(0), F(0), F(0), F(0)), F(1, 4)
    assert task.expansion() == 4
    consistent = task.consistent(student, delta)
    s1 = consistent & task.mistakes()
    around = task.neighbourhood(s1) & consistent
    assert s1 == {0} and task.probability(around) == 1

    def mean_loss(points: frozenset[int]) -> F:
        return task.mean_loss(student, points)

    assert mean_loss(around) == F(1, 16) < (1 - delta) * mean_loss(s1) == F(3, 16)  # the paper says >=
    assert all(student[x] >= mean_loss(s1) - delta for x in around)  # what is true instead
    assert task.error(student) == F(1, 16) <= task.bound(student, F(4), delta) == F(3, 16)


def test_the_papers_second_lemma_is_false_where_the_main_lemma_is_true() -> None:
    """The student is 1/2 at the mistake, 1/4 at its neighbours and 1/3 at the point they share; delta = 1/c."""
    task, student, delta = four_around_one(), (F(1, 2), F(1, 4), F(1, 4), F(1, 4), F(1, 3)), F(1, 4)
    assert task.expansion() == 4
    assert task.consistency(student, delta) == 0
    applies, claimed = second_lemma(task, student, F(4), delta)
    assert applies
    assert claimed == F(13, 48) < task.error(student) == F(15, 48) <= task.bound(student, F(4), delta) == F(23, 48)


def test_the_same_step_is_false_for_consistency_without_any_change() -> None:
    """There are two pairs of neighbours. A mean over both hides that the pair with the loss has fewer neighbours."""
    weight = (F(10, 100), F(30, 100), F(2, 100), F(58, 100))
    pairs = (frozenset({0, 1}), frozenset({0, 1}), frozenset({2, 3}), frozenset({2, 3}))
    task = Finite(weight, (0, 0, 0, 0), (1, 0, 1, 0), pairs)
    student = fractions((1, 1, 0, 0))
    assert task.expansion() == 4
    assert task.consistency(student, F(0)) == 0
    s1 = task.mistakes()
    assert task.mean_loss(student, task.neighbourhood(s1)) == F(2, 5) < task.mean_loss(student, s1) == F(5, 6)
    assert task.error(student) <= task.bound(student, F(4), F(0))


# Theorem 3, on a line.


def radius(x: F, line: list[tuple[F, F]], truth: int) -> F | None:
    """Distance to where a piecewise linear G is 1/2, or 0 if G is on the wrong side of it; None if it never is 1/2."""
    if not abs(dict(line)[x] - truth) < HALF:
        return F(0)
    crossings = [a for a, g in line if g == HALF]
    for (a, g), (b, h) in pairwise(line):
        if (g - HALF) * (h - HALF) < 0:
            crossings.append(a + (HALF - g) * (b - a) / (h - g))
    return min((abs(x - crossing) for crossing in crossings), default=None)


def steepest(line: list[tuple[F, F]]) -> F:
    return max(abs((h - g) / (b - a)) for (a, g), (b, h) in pairwise(line))


def test_a_mean_radius_is_at_least_half_minus_the_error_over_lipschitz() -> None:
    rng = random.Random(2)
    for _ in range(300):
        n = rng.randint(2, 7)
        places = sorted(rng.sample(range(30), n))
        line = [(F(place), F(rng.randint(0, 8), 8)) for place in places]
        if not (lipschitz := steepest(line)):
            continue
        truth = [rng.randint(0, 1) for _ in line]
        share = [rng.randint(0, 5) for _ in line[1:]] + [1]
        weight = [F(s, sum(share)) for s in share]
        error = sum(w * abs(g - t) for w, (_, g), t in zip(weight, line, truth, strict=True))
        radii = [radius(x, line, t) for (x, _), t in zip(line, truth, strict=True)]
        if None not in radii:
            mean = sum(w * (r or 0) for w, r in zip(weight, radii, strict=True))
            assert mean >= (HALF - error) / lipschitz


def test_the_radius_bound_is_attained_and_is_about_rounded_predictions() -> None:
    line = [(F(-1), F(0)), (F(0), F(1, 4)), (F(1), HALF)]  # G = (1 + x) / 4, one data point x = 0 of class 0
    assert radius(F(0), line, 0) == 1 == (HALF - F(1, 4)) / steepest(line)
    # With the paper's words, G(x') = G(x) = G*(x), the radius is 0: G(0) = 1/4 is not the label 0.
    assert dict(line)[F(0)] != 0


def test_with_strict_expansion_theorem_3_is_false() -> None:
    """The seven isolated points lie at 0, 1, ..., 6. Between neighbours, G crosses 1/2 and comes back."""
    values = fractions(ISOLATED.labels)
    line = [(F(x), g) for x, g in enumerate(values)]
    line += [(x + HALF, 1 - values[x]) for x in range(6) if values[x] == values[x + 1]]
    line.sort()
    radii = [radius(F(x), line, t) or F(0) for x, t in enumerate(ISOLATED.truth)]
    mean, lipschitz = sum(radii) / 7, steepest(line)
    claimed = certified_radius_bound(F(6), F(0), F(0), ISOLATED.labeler_error, lipschitz)
    assert lipschitz == 2
    assert claimed == F(9, 28)
    assert mean < claimed


# The functions of `lotnet.paper`.


def test_functions_give_values_computed_by_hand() -> None:
    assert error_bound(F(5), F(1, 100), F(1, 10)) == F(1, 10) + F(3, 100)
    assert loss_bound(F(5), F(1, 10), F(1, 20), F(1, 10), F(1, 5)) == F(1, 5) + F(3, 20) - F(1, 10)
    assert certified_radius_bound(F(5), F(1, 10), F(1, 20), F(1, 10), F(2)) == F(1, 8)
    assert error_bound(5.0, 0.01, 0.1) == pytest.approx(0.13)
    assert certified_radius_bound(5.0, 0.1, 0.05, 0.1, 2.0) == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: error_bound(3.0, 0.0, 0.1), "above 3"),
        (lambda: error_bound(float("nan"), 0.0, 0.1), "above 3"),
        (lambda: error_bound(4.0, -0.1, 0.1), "mu is -0.1"),
        (lambda: error_bound(4.0, 0.0, 0.34), "below 1/3"),
        (lambda: error_bound(4.0, 0.0, 0.3), "more than 1/c = 0.25"),
        (lambda: loss_bound(4.0, 1.1, 0.0, 0.1), "disagreement is 1.1"),
        (lambda: loss_bound(4.0, 0.1, float("nan"), 0.1), "consistency is nan"),
        (lambda: loss_bound(4.0, 0.1, 0.0, 0.1, 0.26), "from 0 to 1/c = 0.25"),
        (lambda: loss_bound(4.0, 0.1, 0.0, 0.1, -0.01), "from 0 to"),
        (lambda: certified_radius_bound(4.0, 0.1, 0.0, 0.1, 0.0), "Lipschitz constant is 0.0"),
        (lambda: fewest_steps(torch.eye(2), 0.0), "positive"),
        (lambda: fewest_steps(torch.zeros(2, 2), 1e-3), "full row rank"),
        (lambda: fewest_steps(torch.ones(3, 2), 1e-3), "transpose"),
    ],
)
def test_violated_preconditions_are_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


def test_fewest_steps_is_the_first_that_reaches_the_tolerance() -> None:
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(20, 4, 6, dtype=torch.complex128, generator=generator)
    for tolerance in (1e-1, 1e-4, 1e-8):
        steps = fewest_steps(v, tolerance)
        assert newton_error_bound(v, steps).max() <= 1 + tolerance < newton_error_bound(v, steps - 1).max()
    # A scaled identity of one row has norm one at once; cond 10: 2^k > log(cond / tolerance) / s^2, s^2 near 1/100.
    assert fewest_steps(torch.full((1, 1), 7.0), 1e-6) == 0
    assert fewest_steps(torch.diag(torch.tensor([1.0, 0.1])), 1e-3) == 10
    values = torch.stack([torch.linalg.matrix_norm(w, ord=2) for w in newton_iterates(v, 10)])
    bounds = torch.stack([newton_error_bound(v, steps) for steps in range(11)])
    assert (values <= bounds + 1e-13).all()

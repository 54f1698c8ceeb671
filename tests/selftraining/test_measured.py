"""The theorems' quantities against counts by hand, and the main lemma for labels of several classes."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from test_plan import frozen

from lotnet.certification import certify
from lotnet.config.selftraining import SelfTrainingConfig
from lotnet.data import load, to_unit
from lotnet.paper.theorems import loss_bound
from lotnet.selftraining.plan import Parts
from lotnet.selftraining.pseudolabels import label
from lotnet.selftraining.theorems import Measured, Share, measure, statements


def test_measured_quantities_equal_counts_by_hand() -> None:
    digits = load("digits")
    teacher, student, images = frozen(seed=0), frozen(seed=1), digits.train.images[:80]
    held_out, hidden = digits.train.select(slice(100, 160)), digits.train.labels[:30]
    found = label(teacher, images, 10)
    ball = 0.002
    parts = Parts(digits, digits.train, held_out, images, hidden, "digits", SelfTrainingConfig(labeled=0.5))
    measured = measure(teacher, student, found, parts, ball)
    certificates = list(certify(student, to_unit(images, torch.float64)))
    said = found.labels.tolist()
    assert measured.disagreement == Share(sum(c.prediction != s for c, s in zip(certificates, said, strict=True)), 80)
    assert measured.inconsistency == Share(sum(c.radius_float <= ball for c in certificates), 80)
    assert 0 < measured.inconsistency.count < 80
    wrong = [t != s for t, s in zip(hidden.tolist(), said, strict=False)]
    assert measured.wrong_pseudo_labels == Share(sum(wrong), 30)
    right = certify(teacher, to_unit(held_out.images, torch.float64), held_out.labels).correct().tolist()
    assert measured.teacher_error == Share(60 - sum(right), 60)
    shares = [
        Fraction(sum(not r for r, y in zip(right, held_out.labels.tolist(), strict=True) if y == digit), n)
        for digit in range(10)
        if (n := int((held_out.labels == digit).sum()))
    ]
    assert measured.worst_class_error.exact == max(shares)
    no_hidden = measure(teacher, teacher, found, replace(parts, hidden=hidden[:0]), 0.0)
    assert (no_hidden.disagreement.count, no_hidden.wrong_pseudo_labels) == (0, None)


def made_up(worst: Share, disagreeing: int = 5, unproved: int = 2) -> Measured:
    shares = Share(worst.count, 10 * worst.among), worst, Share(disagreeing, 100), Share(unproved, 100)
    return Measured(*shares, ball=0.1, wrong_pseudo_labels=None)


def test_the_main_lemma_uses_the_counted_quantities() -> None:
    measured = made_up(Share(1, 10))
    lemma, second, third = statements(measured)
    expected = loss_bound(Fraction(10), Fraction(5, 100), Fraction(2, 100), Fraction(1, 100))
    assert lemma.bound == float(expected)
    assert f"at most {float(expected):.3f}" in lemma.sentence
    assert second.bound is third.bound is None


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (made_up(Share(0, 10)), "no mistake"),
        (made_up(Share(1, 3)), "1 of 3 held-out images of its worst class"),
        (made_up(Share(1, 10), unproved=90), "says nothing"),
        (made_up(Share(3, 10), 0, 0), "negative"),
    ],
)
def test_a_vacuous_theorem_gives_its_reason_in_one_sentence(measured: Measured, words: str) -> None:
    sentence = statements(measured)[0].sentence
    assert words in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def largest_expansion(classes: list[int], neighbours: list[set[int]], mistaken: set[int]) -> Fraction | None:
    """Expansion of sets within each class, up to the largest share of mistakes, and at most the inverse of that share.
    All points are equally likely."""
    members = {c: [x for x in range(len(classes)) if classes[x] == c] for c in set(classes)}
    a = max(Fraction(len(mistaken & set(mine)), len(mine)) for mine in members.values())
    if a == 0:
        return None
    c = 1 / a
    for mine in members.values():
        for size in range(1, int(a * len(mine)) + 1):
            for chosen in combinations(mine, size):
                around = len(set().union(*(neighbours[x] for x in chosen)) & set(mine))
                if around < len(mine):
                    c = min(c, Fraction(around, size))
    return c


def test_the_main_lemma_holds_for_labels_of_three_classes() -> None:
    """With `delta = 0` and labels in place of numbers in [0, 1]: docs/self-training.md has the proof."""
    rng = random.Random(0)
    told = attained = 0
    for _ in range(3000):
        n = rng.randint(8, 14)
        truth = [rng.choice([0, 0, 1, 2]) for _ in range(n)]
        likely = rng.choice([0.3, 0.6, 0.9])
        balls = [
            {x} | {z for z in range(n) if rng.random() < (likely if truth[z] == truth[x] else 0.02)} for x in range(n)
        ]
        neighbours = [{y for y in range(n) if balls[x] & balls[y]} for x in range(n)]
        teacher = [rng.randrange(3) if rng.random() < 0.15 else y for y in truth]
        student = [rng.choice([t, t, y, y, rng.randrange(3)]) for t, y in zip(teacher, truth, strict=True)]
        if rng.random() < 0.5:
            student = list(rng.choice([teacher, truth]))
        c = largest_expansion(truth, neighbours, {x for x in range(n) if teacher[x] != truth[x]})
        if c is None or c <= 3:
            continue

        def share(one: list[int], other: list[int]) -> Fraction:
            return Fraction(sum(a != b for a, b in zip(one, other, strict=True)), len(one))

        inconsistent = Fraction(sum(len({student[z] for z in balls[x]}) > 1 for x in range(n)), n)
        bound = loss_bound(c, share(student, teacher), inconsistent, share(teacher, truth))
        assert share(student, truth) <= bound
        told += 1
        attained += bound < 1
    assert told > 300
    assert attained > 30

"""Attacks on certified models. No attack may beat a certificate.

Each attack takes the model as a callable from images in [0, 1] to logits.
"""

from lotnet.attacks.accuracy import LInfAccuracy, linf_accuracy
from lotnet.attacks.autoattack import auto_attack_l2, require_auto_attack
from lotnet.attacks.check import Budget, Counterexample, check_certificates
from lotnet.attacks.nearest import Nearest, nearest_examples
from lotnet.attacks.pgd import (
    LINF_RADIUS,
    PGD_L2,
    PGD_LINF,
    AttackLoss,
    PGDSettings,
    nearest_boundary,
    pgd_l2,
    pgd_linf,
)
from lotnet.attacks.report import AttackReport, AttackSettings, attack_report
from lotnet.attacks.rounding_search import is_within, onto_sphere, rounding_search, squared_distance

__all__ = [
    "LINF_RADIUS",
    "PGD_L2",
    "PGD_LINF",
    "AttackLoss",
    "AttackReport",
    "AttackSettings",
    "Budget",
    "Counterexample",
    "LInfAccuracy",
    "Nearest",
    "PGDSettings",
    "attack_report",
    "auto_attack_l2",
    "check_certificates",
    "is_within",
    "linf_accuracy",
    "nearest_boundary",
    "nearest_examples",
    "onto_sphere",
    "pgd_l2",
    "pgd_linf",
    "require_auto_attack",
    "rounding_search",
    "squared_distance",
]

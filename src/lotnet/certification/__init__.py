"""Certified radii, proved for the real function (claim A) and for the floating-point program (claim B)."""

from lotnet.certification.audit import AuditRow, audit
from lotnet.certification.certificate import Certificate, Certificates, certify

__all__ = ["AuditRow", "Certificate", "Certificates", "audit", "certify"]

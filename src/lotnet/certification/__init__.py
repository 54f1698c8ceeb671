"""Radii that are proved: for the real function, and for the floating-point program."""

from lotnet.certification.audit import AuditRow, audit
from lotnet.certification.certificate import Certificate, Certificates, certify

__all__ = ["AuditRow", "Certificate", "Certificates", "audit", "certify"]

"""Certificates of one sandbox: an authority, and the one certificate that it signed, in a folder.

    ca.crt  ca.key      the authority
    tls.crt tls.key     for servers on this machine, and for their clients where the authority is trusted for both

Each server that must not accept holders of another's key has its own authority. Keys never leave the sandbox's folder
and are deleted with it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_YEARS = datetime.timedelta(days=3650)
_HOUR = datetime.timedelta(hours=1)


def pair(folder: Path, names: Sequence[str] = (), *, for_kueue: bool = False) -> Path:
    """Return the folder of an authority and its certificate for 127.0.0.1, localhost and `names`; create both.

    Existing files are kept.
    """
    if (folder / "tls.crt").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = "kueue-ca" if for_kueue else "sandbox-ca"  # Kueue trusts no other name
    key = ec.generate_private_key(ec.SECP256R1())
    # Kueue requires an RSA key of its authority. Finding primes takes a while, so others use EC keys.
    authority_key: Key = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if for_kueue
        else ec.generate_private_key(ec.SECP256R1())
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    signed = (
        _certificate(authority, authority, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(authority)]), critical=False)
        .sign(authority_key, SHA256())
    )
    own = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *(x509.DNSName(name) for name in ("localhost", *names))]
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _certificate("sandbox", authority, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(own), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(authority_key, SHA256())
    )
    _write(folder / "ca.key", _private(authority_key))
    _write(folder / "ca.crt", signed.public_bytes(Encoding.PEM))
    _write(folder / "tls.key", _private(key))
    _write(folder / "tls.crt", certificate.public_bytes(Encoding.PEM))  # last: its existence means that all files exist
    return folder


def signing_key(file: Path) -> Path:
    """Return a key that signs tokens, with its public half beside it as NAME.pub."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        _write(file.with_suffix(".pub"), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        _write(file, _private(key))
    return file


def _certificate(name: str, issuer: str, key: Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _HOUR)  # tolerates clocks that are a little behind
        .not_valid_after(now + _YEARS)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def _write(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)

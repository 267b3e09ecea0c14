"""Pairing: a server's identity, its pairing code, and where clients store it.

The identity is a private key and a certificate that the server makes for itself and keeps in
``TILEWRIGHT_CONFIG_DIR/rpc-identity.pem``. Its pairing code has the certificate's fingerprint, by which clients know
the server, and a token, by which the server knows its clients. Whoever has the code may use the board.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import hashlib
import json
import ssl
from dataclasses import dataclass
from pathlib import Path

from tilewright.runtime import environment as variables
from tilewright.runtime.error import RPCError
from tilewright.runtime.partial_files import whole_file

_VERSION = "tw1"
_TOKEN = 16
_YEARS = 100  # the pin says which certificate is good, not a date


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 of a certificate in DER, in hexadecimal digits."""
    return hashlib.sha256(certificate).hexdigest()


@dataclass(frozen=True)
class Pairing:
    """The shared data of a pairing."""

    fingerprint: str
    token: str

    @property
    def code(self) -> str:
        """The pairing as one word."""
        data = bytes.fromhex(self.fingerprint + self.token)
        return f"{_VERSION}.{base64.urlsafe_b64encode(data).decode()}"

    @classmethod
    def parse(cls, code: str) -> Pairing:
        """The pairing of a word.

        Raises:
            RPCError: it is no pairing code, was not copied to its end, or is of another version.
        """
        version, _, text = code.strip().partition(".")
        if version != _VERSION:
            raise RPCError(f"a pairing code begins with {_VERSION}., not with {code.strip()[:8]!r}")
        with contextlib.suppress(binascii.Error, ValueError):
            data = base64.b64decode(text, altchars=b"-_", validate=True)
            if len(data) == hashlib.sha256().digest_size + _TOKEN:
                return cls(data[:-_TOKEN].hex(), data[-_TOKEN:].hex())
        raise RPCError("this is no pairing code: it was not copied to its end, or something was added")


# ---- servers ----


@dataclass(frozen=True)
class Identity:
    """A server's key and certificate, in a file that all servers of this user share."""

    path: Path
    pairing: Pairing

    @classmethod
    def load(cls) -> Identity:
        """Load this user's identity, creating it if there is none.

        Raises:
            RPCError: the file is not what this has written, or cannot be made.
        """
        path = variables.config_dir() / "rpc-identity.pem"
        with contextlib.suppress(FileExistsError):
            if not path.exists():
                _write(path, _new_identity(), replace=False)
        text = path.read_text()
        begin = text.find("-----BEGIN CERTIFICATE-----")
        if begin < 0:
            raise RPCError(f"{path} has no certificate; remove it, and another identity will be made")
        fingerprint = fingerprint_of(ssl.PEM_cert_to_DER_cert(text[begin:]))
        # known to whoever has the key, and to nobody from the certificate
        token = hashlib.sha256(b"tilewright pairing" + text[:begin].encode()).hexdigest()[: 2 * _TOKEN]
        return cls(path, Pairing(fingerprint, token))

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a server's connections."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # sessions are not resumed
        context.load_cert_chain(self.path)
        return context


def _new_identity() -> str:
    """A new key and certificate, in PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise RPCError(
            "making a certificate needs the package cryptography: pip install tilewright[rpc]; "
            "or let clients prove a secret (secret=, --secret)"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tilewright rpc-server")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (private + certificate.public_bytes(serialization.Encoding.PEM)).decode()


def _write(path: Path, text: str, replace: bool) -> None:
    """Write a file that only this user reads, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, replace) as partial:
        partial.touch(0o600)
        partial.write_text(text)


# ---- clients ----


def _pins() -> Path:
    return variables.config_dir() / "rpc-pairings.json"


def load() -> dict[str, Pairing]:
    """Return this user's pairings: by address, or by fingerprint if no address was set.

    Raises:
        RPCError: the file is not valid.
    """
    try:
        data = json.loads(_pins().read_text())
        return {name: Pairing.parse(code) for name, code in data["pairings"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RPCError) as error:
        raise RPCError(f"{_pins()} cannot be used ({error}); remove it, and pair again") from None


def _store(pairings: dict[str, Pairing]) -> None:
    data = {"version": 1, "pairings": {name: pairing.code for name, pairing in sorted(pairings.items())}}
    _write(_pins(), json.dumps(data, indent=2) + "\n", replace=True)


def pair(code: str, address: str | None = None) -> Pairing:
    """Remember a server by the code that it printed.

    Args:
        code: the pairing code.
        address: "host:port" at which only this server may answer from now on; None for servers behind a tracker.

    Returns:
        the pairing of the code.

    Raises:
        RPCError: it is no pairing code.
    """
    pairing = Pairing.parse(code)
    _store(load() | {address or pairing.fingerprint: pairing})
    return pairing


def forget(address: str) -> bool:
    """Forget the server of an address; return whether there was one."""
    pairings = load()
    found = pairings.pop(address, None)
    if found:
        _store(pairings)
    return found is not None

"""The wire's alphabet by docs/WIRE.md: notation, HPKE, veil, records, patterns, certificates.

Needs the package `cryptography`; exits with 77 without it. Numbers in comments are sections of WIRE.md.
"""
import hashlib
import hmac
import sys
from urllib.parse import unquote

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV, ChaCha20Poly1305
    from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, SignatureAlgorithmOID
except ImportError as missing:
    print(f"{sys.argv[0]}: {missing}; type: pip install cryptography", file=sys.stderr)
    sys.exit(77)


class Refused(Exception):
    """What was read is not what WIRE.md says."""


def check(holds, what):
    if not holds:
        raise Refused(what)


# 0. Notation.
def u8(n): return n.to_bytes(1, "big")
def u16(n): return n.to_bytes(2, "big")
def u32(n): return n.to_bytes(4, "big")
def u64(n): return n.to_bytes(8, "big")
def sha256(data): return hashlib.sha256(data).digest()


def transcript(label, *parts, hash_function=hashlib.sha256):
    h = hash_function(b"sealcast transcript\0")
    for part in (label.encode(), *parts):
        h.update(u64(len(part)) + part)
    return h.digest()


def derive(ikm, salt, *parts, n=32):
    info = b"".join(u64(len(part)) + part for part in parts)
    return expand(hmac.digest(salt or bytes(32), ikm, "sha256"), info, n)


def expand(prk, info, n):
    out, block = b"", b""
    for i in range(1, -(-n // 32) + 1):
        block = hmac.digest(prk, block + info + u8(i), "sha256")
        out += block
    return out[:n]


class Reader:
    def __init__(self, data): self.rest = data

    def take(self, n):
        check(n <= len(self.rest), "cut short")
        head, self.rest = self.rest[:n], self.rest[n:]
        return head

    def int(self, n): return int.from_bytes(self.take(n), "big")

    def bytes16(self, most):
        n = self.int(2)
        check(n <= most, "a length over its limit")
        return self.take(n)

    def end(self): check(not self.rest, "bytes left over")


def verified(key, message, signature):
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
            key.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
        else:
            key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


# HPKE (RFC 9180), base mode, with the suites of section 0.
KEM, SUITE = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x02"


def extract(of, salt, label, ikm): return hmac.digest(salt or bytes(32), b"HPKE-v1" + of + label + ikm, "sha256")
def labelled(of, prk, label, data, n): return expand(prk, u16(n) + b"HPKE-v1" + of + label + data, n)


def hpke_pair(secret):
    """DeriveKeyPair: the private key and the public one's bytes."""
    private = labelled(KEM, extract(KEM, b"", b"dkp_prk", secret), b"sk", b"", 32)
    private = x25519.X25519PrivateKey.from_private_bytes(private)
    return private, private.public_key().public_bytes_raw()


def hpke_open(secret, info, aad, sealed):
    (private, public), enc = hpke_pair(secret), sealed[:32]
    dh = private.exchange(x25519.X25519PublicKey.from_public_bytes(enc))
    shared = labelled(KEM, extract(KEM, b"", b"eae_prk", dh), b"shared_secret", enc + public, 32)
    context = b"\0" + extract(SUITE, b"", b"psk_id_hash", b"") + extract(SUITE, b"", b"info_hash", info)
    prk = extract(SUITE, shared, b"secret", b"")
    key, nonce = labelled(SUITE, prk, b"key", context, 32), labelled(SUITE, prk, b"base_nonce", context, 12)
    return AESGCM(key).decrypt(nonce, sealed[32:], aad)


# 1.3 The veil.
class Veil:
    def __init__(self, secret):
        self.tag = derive(secret, b"", b"sealcast/v1/veil", b"tag", n=8)
        self.key = AESGCMSIV(derive(secret, b"", b"sealcast/v1/veil", b"key"))

    def open(self, datagram):
        """The nonce and the message."""
        check(datagram[:2] == b"\x5c\x02" and datagram[2:10] == self.tag, "foreign")
        return datagram[10:22], self.key.decrypt(datagram[10:22], datagram[22:], self.tag)


# 2. Records.
def frames(data):
    r, found = Reader(data), []
    while r.rest:
        kind = r.int(1)
        if kind == 0:
            check(not any(r.take(len(r.rest))), "padding is zero")
        elif kind == 3:
            found.append({"kind": "heartbeat", "number": r.int(8)})
        elif kind == 4:
            found.append({"kind": "control", "number": 0, "body": r.take(r.int(2))})
        elif kind == 5:
            domain, signed = stream(r)
            found.append({"kind": "after", "domain": domain, "is_signed": signed, "number": r.int(8)})
        else:
            check(kind & 0x1F in (1, 2), "unknown frame")
            f = {"kind": "whole" if kind & 0x1F == 1 else "piece", "keys": bool(kind & 0x40)}
            if kind & 0x20:
                f["again"] = True
            topic, length, f["number"] = r.int(1), r.int(4), r.int(8)
            if f["kind"] == "piece":
                f["total"], f["offset"] = r.int(4), r.int(4)
                check(length > 0 and f["offset"] + length <= f["total"], "a piece outside of its message")
            f["sent_micros"] = r.int(8) if kind & 0x80 else None
            check(topic == 0 or not f["keys"], "control has no topic")
            f["topic"], f["body"] = r.take(topic).decode(), r.take(length)
            found.append(f)
    return found


# 2.2 Reliable records.
def stream(r):
    domain, signed = r.int(2), r.int(1)
    check(signed < 2, "signed or not")
    return domain, bool(signed)


def control(data):
    """What a member says of reliable records: its name, streams and ranges."""
    r = Reader(data)
    kind = r.int(1)
    check(1 <= kind <= 5, "no such message")
    name = ("TAIL", "STATUS", "SUMMARY", "NAK", "GONE")[kind - 1]
    count = r.int(1) if name in ("TAIL", "STATUS", "SUMMARY") else 1
    check(count <= 56, "too many streams")
    streams, ranges = [], []
    for _ in range(count):
        slot = [] if name in ("TAIL", "GONE") else [r.int(4)]
        domain, signed = stream(r)
        streams.append([*slot, domain, int(signed), 0 if name == "NAK" else r.int(8)])
    if name == "NAK":
        ranges = [[r.int(8), r.int(8)] for _ in range(r.int(1))]
        check(len(ranges) <= 32 and all(first <= last for first, last in ranges), "no such ranges")
    if name == "GONE":
        r.take(len(r.rest))  # the proof: 2.2
    check(not r.rest, "nothing is left over")
    return name, streams, ranges


# 2.1 Origin proofs.
def proof(record):
    """Frames, root and signature of a signed record."""
    index, count, n = record[-4], record[-3], int.from_bytes(record[-2:], "big")
    check(index < count <= 64, "no such place")
    body, signature = record[:-4 - n], record[-4 - n:-4]
    cut = len(body) - 32 * (count - 1).bit_length()
    data, siblings = body[:cut], [body[i:i + 32] for i in range(cut, len(body), 32)]
    top, i, width = sha256(b"\0" + sha256(data)), index, count
    while width > 1:
        if i ^ 1 < width:
            other = siblings.pop(0)
            top = sha256(b"\1" + (top + other if i % 2 == 0 else other + top))
        i, width = i // 2, -(-width // 2)
    check(not any(b"".join(siblings)), "unused places are zero")
    return data, sha256(b"\2" + u64(count) + top), signature


# 5. Patterns, as lists of levels: a text, ONE or MANY.
ONE, MANY = ("+",), ("#",)


def pattern(text):
    levels = [{"+": ONE, "#": MANY}.get(level) or unescape(level) for level in text.split("/")]
    check(MANY not in levels[:-1], "# stands at the end only")
    return levels


def unescape(level):
    out, characters = "", iter(level)
    for c in characters:
        check(c not in "+#", "a wildcard stands alone")
        out += next(characters) if c == "\\" else c
    return out


def order(levels):
    return [(2, b"") if level == MANY else (1, b"") if level == ONE else (0, level.encode()) for level in levels]


def split(levels): return (levels[:-1], True) if levels[-1] == MANY else (levels, False)


def covers(a, b):
    (mine, my_rest), (theirs, their_rest) = split(a), split(b)
    theirs = theirs or [ONE]  # every topic has a level
    fits = len(mine) <= len(theirs) if my_rest else len(mine) == len(theirs) and not their_rest
    return fits and all(m == ONE or m == t for m, t in zip(mine, theirs))


def overlaps(a, b):
    (mine, my_rest), (theirs, their_rest) = split(a), split(b)
    fits = (my_rest or len(mine) >= len(theirs)) and (their_rest or len(theirs) >= len(mine))
    return fits and all(m == t or ONE in (m, t) for m, t in zip(mine, theirs))


def matches(levels, topic): return covers(levels, topic.split("/"))


# 5. Certificates.
ED25519, ECDSA_SHA256 = SignatureAlgorithmOID.ED25519, SignatureAlgorithmOID.ECDSA_WITH_SHA256
KNOWN = [ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE, ExtensionOID.EXTENDED_KEY_USAGE,
         ExtensionOID.SUBJECT_ALTERNATIVE_NAME]


def plain(text):
    """Undoes percent-encoding."""
    check(all(len(part) >= 2 and set(part[:2]) <= set("0123456789abcdefABCDEF") for part in text.split("%")[1:]), "an escape")
    return unquote(text, errors="strict")


class Certificate:
    """A member's, issued by this authority; its dates are judged by `good_at`."""

    def __init__(self, der, authority):
        check(len(der) <= 4096, "a certificate's length")
        self.der, self.hash, parsed = der, sha256(der), x509.load_der_x509_certificate(der)
        check(parsed.version == x509.Version.v3 and parsed.issuer.public_bytes() == authority.subject.public_bytes(), "its issuer")
        check(parsed.signature_algorithm_oid in (ED25519, ECDSA_SHA256), "its algorithm")
        parsed.verify_directly_issued_by(authority)
        found = {extension.oid: extension for extension in parsed.extensions}
        check(all(oid in KNOWN for oid, extension in found.items() if extension.critical), "a critical extension")
        constraints, usage, extended = (found.get(oid) for oid in KNOWN[:3])
        check(constraints is None or not constraints.value.ca, "no authority")
        check(usage is None or usage.value.digital_signature, "its key usage")
        check(extended is None or ExtendedKeyUsageOID.CLIENT_AUTH in extended.value, "its extended key usage")
        self.parsed, self.authority, self.key, self.rights, self.sealing = parsed, authority, parsed.public_key(), [], None
        is_p256 = isinstance(self.key, ec.EllipticCurvePublicKey) and isinstance(self.key.curve, ec.SECP256R1)
        check(is_p256 or isinstance(self.key, ed25519.Ed25519PublicKey), "its key")
        self.serial = parsed.serial_number.to_bytes((parsed.serial_number.bit_length() + 7) // 8, "big")
        names = found[KNOWN[3]].value if KNOWN[3] in found else []
        for uri in [name.value for name in names if isinstance(name, x509.UniformResourceIdentifier)]:
            self.read(uri)

    def read(self, uri):
        if not uri.startswith("urn:sealcast:"):
            return
        first, _, rest = uri[13:].partition(":")
        if first == "key":
            check(len(rest) == 64 and self.sealing is None, "one sealing key")
            self.sealing = bytes.fromhex(rest)
        elif first == "attr":
            issuer, _, pair = rest.partition(":")
            check(issuer and "=" in pair, "an attribute")
        else:
            act, colon, text = rest.partition(":")
            check(colon, "a right")
            if act in ("pub", "sub", "both", "evict"):
                pattern(plain(text))
                self.rights.append((plain(first), act, plain(text)))

    def good_at(self, utc):
        for certificate in (self.parsed, self.authority):
            check(utc - 300 <= certificate.not_valid_after_utc.timestamp(), "its time is over")
        check(self.parsed.not_valid_before_utc.timestamp() <= utc + 300, "its time has not come")

    def grants(self, group, *acts):
        return [pattern(text) for of, act, text in self.rights if of == group and act in acts]

    def reads(self, group, patterns):
        mine = self.grants(group, "sub", "both")
        return all(any(covers(grant, p) for grant in mine) for p in patterns)

    def may_publish(self, group, topic):
        return any(matches(p, topic) for p in self.grants(group, "pub", "both"))

#!/usr/bin/env python3
"""Reads Sealcast's wire by docs/WIRE.md alone: opens, parses and verifies the golden vectors.

    python3 docs/peer/read.py [the repository's folder]

Given a group's veil, its authority and, per agreement, what each member drew at random, it computes all else: cards,
rosters, compartments, rings, epochs, keys. It shares no code with the library, is not constant-time, and only reads.
Needs the package `cryptography`; exits with 77 without it. Numbers in comments are sections of WIRE.md.
"""
import hashlib
import hmac
import json
import pathlib
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
    print(f"read.py: {missing}; type: pip install cryptography", file=sys.stderr)
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
        else:
            check(kind & 0x3F in (1, 2), "unknown frame")
            f = {"kind": "whole" if kind & 0x3F == 1 else "piece", "keys": bool(kind & 0x40)}
            topic, length, f["number"] = r.int(1), r.int(4), r.int(8)
            if f["kind"] == "piece":
                f["total"], f["offset"] = r.int(4), r.int(4)
                check(length > 0 and f["offset"] + length <= f["total"], "a piece outside of its message")
            f["sent_micros"] = r.int(8) if kind & 0x80 else None
            check(topic == 0 or not f["keys"], "control has no topic")
            f["topic"], f["body"] = r.take(topic).decode(), r.take(length)
            found.append(f)
    return found


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


# 9. ristretto255 (RFC 9496), in extended coordinates.
P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT = -121665 * pow(121666, -1, P) % P, pow(2, (P - 1) // 4, P)
NOTHING = (0, 1, 1, 0)


def even(x): return -x % P if x % P % 2 else x % P


def root_of_ratio(u, v):
    r = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    seen = v * r * r % P
    if seen in (-u % P, -u * ROOT % P):
        r = r * ROOT % P
    return seen in (u % P, -u % P), even(r)


def decode(data):
    s = int.from_bytes(data, "little")
    check(s < P and s % 2 == 0, "not canonical")
    u, w = (1 - s * s) % P, (1 + s * s) % P
    v = (-D * u * u - w * w) % P
    square, r = root_of_ratio(1, v * w * w)
    x, y = even(2 * s * r * w), u * r * r * w * v % P
    check(square and x * y % P % 2 == 0 and y != 0, "no element")
    return x, y, 1, x * y % P


def encode(point):
    x, y, z, t = point
    u, w = (z + y) * (z - y) % P, x * y % P
    _, r = root_of_ratio(1, u * w * w)
    a, b = r * u % P, r * w % P
    inverse = a * b * t % P
    if t * inverse % P % 2:
        x, y, b = y * ROOT % P, x * ROOT % P, a * root_of_ratio(1, -1 - D)[1] % P
    if x * inverse % P % 2:
        y = -y % P
    return even(b * (z - y)).to_bytes(32, "little")


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0])
    c, d = 2 * D * p[3] * q[3], 2 * p[2] * q[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def minus(p): return -p[0] % P, p[1], p[2], -p[3] % P


def times(k, p):
    out = NOTHING
    for bit in bin(k % Q)[2:]:
        out = add(out, out)
        out = add(out, p) if bit == "1" else out
    return out


G = decode(bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76"))


def wide(data): return int.from_bytes(data, "little") % Q


def scalars(data):
    c, s = (int.from_bytes(half, "little") for half in (data[:32], data[32:]))
    check(c < Q and s < Q, "scalars are reduced")
    return c, s


def challenge(label, *parts): return wide(transcript(label, *parts, hash_function=hashlib.sha512))


class Ring:
    """9: one ring of an agreement; `places` are slots."""

    def __init__(self, number, places, group, p):
        self.places, self.n, self.proved, self.x, self.y = places, len(places), p["attempt"] > 1, {}, {}
        self.secret = None
        self.session = transcript(
            "sealcast/v1/db/session", b"ristretto255", group, u16(number), u32(p["counter"]), u32(p["attempt"]),
            u8(2 if p["type"] == 4 else 1), p["roster"], p["instance"], u32(self.n), u8(2 if self.proved else 1))

    def contribution(self, slot, data):  # 9.2
        seat = self.places.index(slot)
        x, (c, s) = decode(data[:32]), scalars(data[32:])
        check(data[:32] != bytes(32), "the identity contributes nothing")
        a = add(times(s, G), minus(times(c, x)))
        check(c == challenge("DB/knowledge", self.session, u32(seat), data[:32], encode(a)), "exponent not proved")
        check(self.n <= 2 or data[:32] not in self.x.values(), "equal contributions")
        self.x[seat] = data[:32]

    def share(self, slot, data):  # 9.3
        seat = self.places.index(slot)
        check(len(data) == (96 if self.proved else 32), "a share's length")
        check((data[:32] == bytes(32)) == (self.n <= 2), "the identity where it must be, and there only")
        y = decode(data[:32])
        if self.proved:
            left, own, right = (self.x[(seat + d) % self.n] for d in (-1, 0, 1))
            c, s = scalars(data[32:])
            h = add(decode(right), minus(decode(left)))
            a = add(times(s, G), minus(times(c, decode(own))))
            b = add(times(s, h), minus(times(c, y)))
            parts = left, own, right, data[:32], encode(a), encode(b)
            check(c == challenge("DB/share", self.session, u32(seat), *parts), "share not proved")
        self.y[seat] = data[:32]

    def close(self, seat, x):  # 9.3, 9.4: the key, from one seat's exponent
        check(encode(times(x, G)) == self.x[seat], "not the exponent of that seat")
        left, right = (times(x, decode(self.x[(seat + d) % self.n])) for d in (-1, 1))
        check(encode(add(right, minus(left))) == self.y[seat], "not the share of that seat")
        key = total = right
        for j in range(1, self.n):
            key = add(key, decode(self.y[(seat + j) % self.n]))
            total = add(total, key)
        check(encode(key) == encode(left), "the ring does not close")
        rounds = [self.x[i] for i in range(self.n)] + [self.y[i] for i in range(self.n)]
        self.sk, self.transcript = encode(total), transcript("DB/transcript", self.session, *rounds)
        secret = derive(self.sk, self.transcript, b"DB/key")
        check(self.secret in (None, secret), "members got different keys")
        self.secret, self.commitment = secret, derive(secret, b"", b"com")

    def confirmation(self, slot):
        of = transcript("DB/confirm", self.transcript, u32(self.places.index(slot)))
        return hmac.digest(derive(self.secret, b"", b"DB/confirm"), of, "sha256")


class Group:
    """What somebody knows who hears a group's datagrams and has its veil."""

    def __init__(self, given):
        self.group, self.name, self.suite = given["group"], given["group"].encode(), given["suite"]
        self.veil = Veil(bytes.fromhex(given["veil"]))
        self.authority = x509.load_der_x509_certificate(bytes.fromhex(given["authority"]))
        self.authority_hash = sha256(bytes.fromhex(given["authority"]))
        self.cards, self.proposals, self.epochs = {}, {}, {}
        self.evictions, self.crl, self.policy = {}, 0, (0, [])

    # 6. Statements.
    def statement(self, data):
        r = Reader(data)
        check(r.take(2) == b"SC", "a statement")
        kind, version, by_member = r.take(1), r.int(1), r.int(1)
        check(version == 1 and by_member <= 1, "a statement of this version")
        check(len(data) <= 12288, "a statement's length")
        body, key, by = r.bytes16(12288), self.authority.public_key(), b""
        if by_member:
            signer, evicted = (Certificate(r.bytes16(4096), self.authority) for _ in range(2))
            key, by = signer.key, signer.hash
        identity = transcript("sealcast/v1/statement", kind, self.authority_hash, by, body)
        check(verified(key, identity, r.take(64)), "a statement's signature")
        r.end()
        r = Reader(body)
        check(r.bytes16(64) == self.name, "a statement about this group")
        if kind == b"E":
            serial, cert, number, voids = r.bytes16(20), r.take(32), r.int(8), r.int(1)
            check(serial[:1] > b"\0" and voids <= 1, "one encoding of a serial")
            if by_member:
                check(not voids and (evicted.serial, evicted.hash) == (serial, cert), "a member's statement")
                may = signer.grants(self.group, "evict")
                theirs = [pattern(text) for of, _, text in evicted.rights if of == self.group] or [[MANY]]
                check(all(any(covers(e, t) for e in may) for t in theirs), "no right to evict")
            r.bytes16(200).decode()
            self.evictions[cert, by] = identity
        else:
            check(kind == b"P" and not by_member, "the authority's policy")
            number, _, _ = r.int(8), r.int(4), r.int(1)
            lines = [(r.bytes16(64), [r.bytes16(255).decode() for _ in range(r.int(2))]) for _ in range(r.int(2))]
            check(len({name for name, _ in lines}) == len(lines) <= 16, "names of compartments")
            self.policy = number, lines
        r.end()
        return identity

    def evictions_hash(self):
        return transcript("sealcast/v1/evictions", self.name, *(self.evictions[key] for key in sorted(self.evictions)))

    def state(self):  # 8.1
        return transcript("sealcast/v1/statements", self.evictions_hash(), u64(self.crl), u64(self.policy[0]))

    def summary(self, r):
        same = r.take(8) == self.evictions_hash()[:8], r.int(8) == self.crl, r.int(8) == self.policy[0]
        check(all(same), "the same statements")

    # 7. Messages.
    def message(self, datagram):
        nonce, plain = self.veil.open(datagram)
        names = {1: "JOIN", 2: "PROPOSE", 3: "PROPOSE", 4: "PROPOSE", 5: "R1", 6: "R2", 7: "KC", 8: "STATUS", 9: "FETCH",
                 10: "GIVE", 11: "BEACON", 12: "LEAVE", 13: "SENDERKEY", 14: "STATE"}
        name = names[plain[0]]
        body, signature = (plain, None) if name in ("FETCH", "GIVE", "STATE") else (plain[:-64], plain[-64:])
        r = Reader(body[1:])
        key, signed = getattr(self, "read_" + name.lower())(r, body, nonce)
        check(signature is None or verified(key, signed, signature), f"the signature of {name}")
        r.end()
        return name

    def card(self, r):  # 7.1
        cert, incarnation, key, signature = r.take(32), r.take(16), r.take(32), r.take(64)
        certificate = Certificate(r.bytes16(4096), self.authority)
        check(certificate.hash == cert, "the certificate's hash")
        signed = transcript("sealcast/v1/card", self.name, cert, incarnation, key)
        check(verified(certificate.key, signed, signature), "a card's signature")
        short = transcript("sealcast/v1/member", self.name, cert, incarnation, key)[:8]
        self.cards[short] = {
            "short": short, "cert": cert, "incarnation": incarnation, "raw": key, "certificate": certificate,
            "key": ed25519.Ed25519PublicKey.from_public_bytes(key)}
        return self.cards[short]

    def read_join(self, r, body, _):  # 7.2
        card = self.card(r)
        self.summary(r)
        r.take(12 + 2 + 12)
        return card["key"], transcript("sealcast/v1/join", self.name, body)

    def read_propose(self, r, body, nonce):  # 7.3
        p = {"type": body[0], "counter": r.int(4), "attempt": r.int(1), "hint": r.take(4)}
        p["base"] = r.take(8) if p["type"] > 2 else None
        p["joiners"] = r.int(8) if p["type"] == 4 else 0
        p["seats"] = [r.take(8) for _ in range(len(r.rest) // 8)]
        others = p["seats"][1:]
        check(others == sorted(set(others) - {p["seats"][0]}), "seats ascend")
        check(p["hint"] == self.state()[:4], "the proposer knows other statements")
        p["instance"] = transcript("sealcast/v1/proposal", self.name, nonce, body)
        self.proposals[p["instance"][:8]] = p
        self.form(p)
        return self.cards[p["seats"][0]]["key"], p["instance"]

    def form(self, p):  # 8.1 to 8.3
        p["slots"] = slots = sorted((self.cards[s] for s in p["seats"]), key=lambda c: (c["cert"], c["incarnation"]))
        roster = [c[part] for c in slots for part in ("cert", "incarnation", "raw")]
        p["roster"], p["state"] = transcript("sealcast/v1/roster", self.name, *roster), self.state()
        everybody = frozenset(range(len(slots)))
        p["domains"], p["readers"], parts = [([], everybody)], [everybody], []
        for name, texts in self.policy[1] or self.derived(slots):
            patterns = [pattern(text) for text in texts]
            readers = frozenset(i for i, c in enumerate(slots) if c["certificate"].reads(self.group, patterns))
            p["domains"].append((patterns, readers))
            parts += [name, u64(len(texts)), *(text.encode() for text in texts), u64(sum(1 << i for i in readers))]
            if readers and readers not in p["readers"]:
                p["readers"].append(readers)
        p["compartments"] = transcript("sealcast/v1/compartments", *parts)
        p["joins"] = joins = [i for i, c in enumerate(slots) if p["joiners"] >> p["seats"].index(c["short"]) & 1]
        places = [sorted(readers) for readers in p["readers"]]
        if p["type"] == 4:
            old = [i for i in range(len(slots)) if i not in joins]
            check(len(places) == 1 and len(old) >= 3 and joins, "a Join where it can be")
            places = [[old[0], old[1], old[-1], *joins]]
        p["rings"] = [Ring(i, slots_of, self.name, p) for i, slots_of in enumerate(places)]
        p["active"] = sorted({slot for ring in p["rings"] for slot in ring.places})
        p["digests"], p["confirmed"] = {"r1": {}, "r2": {}, "kc": {}}, {}

    def derived(self, slots):  # 8.2
        rights = [right for c in slots for right in c["certificate"].rights]
        texts = {text for of, act, text in rights if of == self.group and act in ("sub", "both")} - {"#"}
        texts = sorted(texts, key=lambda text: order(pattern(text)))[:15] + ["#"]
        return [(text.encode(), [text]) for text in texts]

    def round(self, label, r, body):
        author, p = r.take(8), self.proposals[r.take(8)]
        card = self.cards[author]
        slot = p["slots"].index(card)
        whom = [card["cert"], card["incarnation"], card["raw"]] if label == "r1" else []
        signed = transcript("sealcast/v1/" + label, self.name, p["instance"], p["roster"], p["state"], *whom, body)
        if label in p["digests"]:
            p["digests"][label][slot] = signed
        return p, slot, [ring for ring in p["rings"] if slot in ring.places], card, signed

    def read_r1(self, r, body, _):  # 7.4
        p, slot, rings, card, signed = self.round("r1", r, body)
        check(r.int(1) == len(rings), "one contribution per ring")
        for ring in rings:
            ring.contribution(slot, r.take(96))
        return card["certificate"].key, signed

    def read_r2(self, r, body, _):  # 7.5
        p, slot, rings, card, signed = self.round("r2", r, body)
        heard = transcript("sealcast/v1/heard", p["roster"], *(p["digests"]["r1"][i] for i in p["active"]))
        check(r.take(32) == heard, "the author heard other R1")
        check(r.int(1) == len(rings), "one share per ring")
        for ring in rings:
            ring.share(slot, r.take(r.int(1)))
        return card["key"], signed

    def read_kc(self, r, body, _):  # 7.6
        p, slot, _, card, signed = self.round("kc", r, body)
        epoch, rings = r.take(8), [(r.take(32), r.take(32)) for _ in range(r.int(1))]
        p["confirmed"][slot] = {"epoch": epoch, "rings": rings, "publics": [r.take(32) for _ in range(r.int(1))]}
        return card["key"], signed

    def read_status(self, r, body, _):  # 7.7
        p, _, _, card, signed = self.round("status", r, body)
        check(all(r.int(8) >> len(p["seats"]) == 0 for _ in range(3)), "bits of seats")
        return card["key"], signed

    def read_fetch(self, r, *_):  # 7.8
        asked = self.proposals[r.take(8)] if r.int(1) else None
        check(asked is None or asked, "a proposal that was heard of")
        r.take(8 * r.int(2))
        return None, None

    def read_give(self, r, *_):
        while r.rest:
            kind = r.int(1)
            if kind == 1:
                self.card(r)
            elif kind == 3:
                crl = x509.load_der_x509_crl(r.bytes16(16384))
                check(crl.is_signature_valid(self.authority.public_key()), "a CRL's signature")
                self.crl = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            else:
                check(kind in (2, 4), "an unknown object")
                self.statement(r.bytes16(16384))
        return None, None

    def read_state(self, r, *_):
        check((r.int(8), r.int(8)) == (self.crl, self.policy[0]), "numbers of CRL and policy")
        known = sorted(identity[:8] for identity in self.evictions.values())
        check([r.take(8) for _ in range(r.int(2))] == known, "the same evictions")
        return None, None

    def read_beacon(self, r, body, _):  # 7.9
        card, epoch = self.cards[r.take(8)], self.epochs[r.take(12)]
        check(r.int(2) == len(epoch.p["slots"]), "the size of the group")
        self.summary(r)
        return card["key"], transcript("sealcast/v1/beacon", self.name, body)

    def read_leave(self, r, body, _):
        card, _ = self.cards[r.take(8)], self.epochs[r.take(12)]
        return card["certificate"].key, transcript("sealcast/v1/leave", self.name, body)

    def read_senderkey(self, r, body, _):
        card, epoch = self.cards[r.take(8)], self.epochs[r.take(12)]
        epoch.sender_key(card, r.int(2), r.bytes16(256))
        return card["key"], transcript("sealcast/v1/sender-key", self.name, body)

    # 8.4, 8.7: the key, computed as each member from what it drew.
    def agree(self, datagram, agreed):
        nonce, plain = self.veil.open(datagram)
        p = self.proposals[transcript("sealcast/v1/proposal", self.name, nonce, plain[:-64])[:8]]
        slot_of = {name: p["slots"].index(self.cards[short]) for name, short in zip(agreed["seats"], p["seats"])}
        for name, slot in slot_of.items():
            mine = [ring for ring, readers in zip(p["rings"], p["readers"]) if slot in readers]
            drawn = agreed["uniform"][name] + [None] * len(mine)
            for ring, uniform in zip(mine, drawn):
                seat = ring.places.index(slot) if uniform else 1  # the seed's seat, or following it
                ring.close(seat, wide(bytes.fromhex(uniform)) if uniform else self.seed(p, ring))
        epoch = Epoch(self, p)
        for slot, kc in p["confirmed"].items():
            rings = [ring for ring in p["rings"] if slot in ring.places]
            check(kc["epoch"] == epoch.id[4:], "another epoch confirmed")
            check(kc["rings"] == [(ring.confirmation(slot), ring.commitment) for ring in rings], "another key confirmed")
        check(epoch.id.hex() == agreed["epoch"], "another epoch")
        check(p["rings"][0].commitment.hex() == agreed["commitment"], "another key")
        self.epochs[epoch.id] = epoch
        return f"epoch {p['counter']} of {len(p['slots'])}, rings of {', '.join(str(ring.n) for ring in p['rings'])}"

    def seed(self, p, ring):  # 9.2
        [old] = [epoch.p["rings"][0] for epoch in self.epochs.values() if epoch.id[4:] == p["base"]]
        joiners = [p["slots"][i] for i in p["joins"]]
        joiners = [transcript("sealcast/v1/joiner", c["cert"], c["incarnation"]) for c in joiners]
        return wide(derive(old.sk, b"", b"DB/join", old.transcript, ring.session, *joiners, n=64))


class Epoch:
    """4: the keys of an epoch, and what they open."""

    def __init__(self, group, p):
        self.group, self.p, self.own, self.seen, self.pieces = group, p, {}, set(), {}
        digests = [p["digests"][label][slot] for label in ("r1", "r2") for slot in p["active"]]
        self.transcript = transcript(
            "sealcast/v1/epoch", group.name, u8(group.suite), p["instance"], p["roster"], p["state"], p["compartments"],
            *digests, p["rings"][0].commitment)
        self.id = u32(p["counter"]) + self.transcript[:8]

    def secret(self, domain):
        ring = self.p["rings"][self.p["readers"].index(self.p["domains"][domain][1])]
        return derive(ring.secret, self.transcript, b"sealcast/v1/domain", self.group.name, u16(domain))

    def key(self, domain, slot):
        if slot not in self.p["domains"][domain][1]:
            return self.own[domain, slot]
        parts = u16(domain), u16(slot), self.p["slots"][slot]["incarnation"], u8(self.group.suite)
        return derive(self.secret(domain), self.id, b"sealcast/v1/sub", self.group.name, *parts)

    def sender_key(self, card, domain, sealed):  # 7.9
        slot, (patterns, readers) = self.p["slots"].index(card), self.p["domains"][domain]
        writes = card["certificate"].grants(self.group.group, "pub", "both")
        check(slot not in readers and any(overlaps(w, t) for w in writes for t in patterns), "writes without reading")
        info = transcript("sealcast/v1/sender-key-info", self.group.name, self.id, u16(domain))
        pair = derive(self.secret(domain), b"", b"sealcast/v1/writers")
        _, public = hpke_pair(pair)
        self.own[domain, slot] = hpke_open(pair, info, card["short"], sealed)
        published = [kc["publics"] for reader, kc in self.p["confirmed"].items() if reader in readers]
        check(published and all(public in keys for keys in published), "the readers published this key")

    def vouched(self, slot, statement, signature):  # 4.1
        signed = transcript("sealcast/v1/vouch", self.group.name, self.id, u16(slot), statement)
        return verified(self.p["slots"][slot]["key"], signed, signature)

    def open(self, datagram, heard):  # 1.2
        header = Reader(datagram[:28])
        check(header.take(2) == b"\x5c\x01", "a sealed datagram")
        domain, _, slot, flags, counter = header.int(2), header.take(12), header.int(2), header.int(2), header.int(8)
        check(flags <= 1, "unknown flags")
        aead = (AESGCM if self.group.suite == 1 else ChaCha20Poly1305)(self.key(domain, slot))
        record = aead.decrypt(bytes(4) + u64(counter), datagram[28:], datagram[:28])
        check((domain, slot, counter) not in self.seen, "a replay")
        self.seen.add((domain, slot, counter))
        data, said = record, []
        if flags:
            data, root, signature = proof(record)
            statement = transcript("sealcast/v1/origin", self.id, u16(domain), u16(slot), root)
            check(self.vouched(slot, statement, signature), "an origin proof")
        for f in frames(data):
            body = f.get("body") if f["kind"] != "piece" else self.together(slot, domain, flags, f)
            if f["kind"] == "heartbeat":
                said.append("heartbeat")
            elif body is None:
                said.append(f"a piece of #{f['number']}")
            elif f["keys"]:
                check(domain == 0 and body[0] == 1, "a VOUCH on the control lane")
                said.append(self.vouch(slot, body, heard))
            else:
                self.judge(domain, slot, flags, f["topic"])
                said.append(f"{f['topic']} #{f['number']} {body!r}")
        return record, ("signed: " if flags else "claimed: ") + ", ".join(said)

    def together(self, slot, domain, flags, f):
        parts = self.pieces.setdefault((slot, domain, flags, f["number"], f["total"]), {})
        parts[f["offset"]] = f["body"]
        body = b"".join(parts[at] for at in sorted(parts))
        return body if len(body) == f["total"] else None

    def judge(self, domain, slot, flags, topic):  # 8.2
        first = next(i for i, (patterns, _) in enumerate(self.p["domains"]) if any(matches(t, topic) for t in patterns))
        may = [c["certificate"].may_publish(self.group.group, topic) for c in self.p["slots"]]
        must_sign = not all(may[i] for i in self.p["domains"][first][1])
        check(first == domain and may[slot] and (flags or not must_sign), "no right to this topic, or unsigned")

    def vouch(self, slot, body, heard):  # 3
        r, said = Reader(body[1:-64]), body[:-64]
        old, part, parts, n = self.group.epochs[r.take(12)], r.int(1), r.int(1), r.int(2)
        named = {r.take(26) for _ in range(n)}
        r.end()
        statement = transcript("sealcast/v1/vouch", self.id, u16(slot), said)
        check(part < parts and self.vouched(slot, statement, body[-64:]), "a VOUCH")
        sealed = [d for d in heard if d[:2] == b"\x5c\x01" and d[4:16] == old.id]
        check(named <= {d[2:4] + d[20:28] + sha256(d)[:16] for d in sealed}, "it names what was sent")
        return f"VOUCH for {n} of epoch {old.p['counter']}"


def read_group(path):
    file = json.loads(path.read_text())
    for story in file["stories"]:
        print(f"{path.name}: {story['name']}")
        group, heard = Group(file["given"]), []
        for step in story["steps"]:
            datagram = bytes.fromhex(step["datagram"])
            check(datagram[0] == 0x5C != ord("L"), "our first byte")
            if "agreed" in step:
                print("  =", group.agree(datagram, step["agreed"]))
            elif "message" in step:
                said = group.message(datagram)
                check(said == step["message"], f"{said} is no {step['message']}")
                print(f"  {step['from']}: {said}")
            else:
                record, said = group.epochs[datagram[4:16]].open(datagram, heard)
                check(record.hex() == step["record"], "another plaintext")
                print(f"  {step['from']}: {said}")
            heard.append(datagram)


def read_records(path):
    file = json.loads(path.read_text())
    for v in file["frames"]:
        [f] = frames(bytes.fromhex(v["bytes"]))
        expect = {**v, "body": bytes.fromhex(v.get("body", ""))}
        check(all(expect[key] == value for key, value in f.items()), v["what"])
    signed = file["signed"]
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(signed["seed"])).public_key()
    epoch = u32(signed["epoch_counter"]) + u64(signed["epoch_hash"])
    for batch in signed["batches"]:
        for v in batch["records"]:
            data, root, signature = proof(bytes.fromhex(v["record"]))
            statement = transcript("sealcast/v1/origin", epoch, u16(signed["domain"]), u16(signed["slot"]), root)
            check(data.hex() == v["frames"] and verified(key, statement, signature), f"a record of {batch['count']}")
    print(f"{path.name}: {len(file['frames'])} frames, {len(signed['batches'])} signed batches")


def read_primitives(path):
    for v in json.loads(path.read_text())["vectors"]:
        if v["kind"] == "transcript":
            parts = [bytes.fromhex(part) for part in v["parts"]]
            check(transcript(v["label"], *parts).hex() == v["hash32"], v["name"])
            check(transcript(v["label"], *parts, hash_function=hashlib.sha512).hex() == v["hash64"], v["name"])
        elif v["kind"] == "hkdf":
            parts = [bytes.fromhex(part) for part in v["info"]]
            check(derive(bytes.fromhex(v["ikm"]), bytes.fromhex(v["salt"]), *parts).hex() == v["key"], v["name"])
    print(f"{path.name}: transcripts and derived keys")


def main():
    home = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    read_primitives(home / "crypto/vectors/primitives.json")
    read_records(home / "delivery/vectors/records.json")
    read_group(home / "keys/vectors/contributory.json")
    print("all of it is as docs/WIRE.md says")


if __name__ == "__main__":
    main()

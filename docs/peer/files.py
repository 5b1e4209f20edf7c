#!/usr/bin/env python3
"""Reads Sealcast's files by docs/WIRE.md alone: certificates, lists, statements, key texts, invitations.

    python3 docs/peer/files.py [the repository's folder]

As read.py, whose notation it uses: judges each vector of crypto/vectors/identity.json as the library does.
"""
import json
import pathlib
import sys

from read import Group
from wire import (
    ECDSA_SHA256, ED25519, Certificate, Reader, Refused, check, derive, hpke_open, hpke_pair, sha256, transcript, u8, verified,
    x509)
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


# 11.1 Key texts: Bech32m (BIP-350).
ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


def checksum(values):
    c = 1
    for value in values:
        top, c = c >> 25, (c & 0x1FFFFFF) << 5 ^ value
        for i, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            c ^= generator if top >> i & 1 else 0
    return c


def data_of(text, prefix):
    check(text in (text.lower(), text.upper()), "one case")
    name, _, rest = text.lower().rpartition("1")
    check(name == prefix and all(c in ALPHABET for c in rest), f"a text with {prefix}1")
    values = [ALPHABET.index(c) for c in rest]
    check(checksum([ord(c) >> 5 for c in name] + [0] + [ord(c) & 31 for c in name] + values) == 0x2BC830A3, "its checksum")
    bits = "".join(f"{value:05b}" for value in values[:-6])
    check(len(bits) % 8 < 5 and "1" not in bits[len(bits) - len(bits) % 8:], "its padding")
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits) // 8 * 8, 8))


def text_of(data, prefix):
    bits = "".join(f"{byte:08b}" for byte in data)
    values = [int(bits[i:i + 5].ljust(5, "0"), 2) for i in range(0, len(bits), 5)]
    name = [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix]
    c = checksum(name + values + [0] * 6) ^ 0x2BC830A3
    return prefix + "1" + "".join(ALPHABET[v] for v in values + [c >> 5 * (5 - i) & 31 for i in range(6)])


def secrets(text, kind):
    """A member's or an authority's: algorithm, signing seed, and the other secret."""
    data = data_of(text, "sc-secret-")
    check(text == text.upper() and len(data) == 66 and data[0] == kind and data[1] in (1, 2), "a secret of its kind")
    return data[1], data[2:34], data[34:]


def point(algorithm, seed):
    if algorithm == 1:
        return ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    key = ec.derive_private_key(int.from_bytes(seed, "big"), ec.SECP256R1()).public_key()
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def public_keys(algorithm, seed, sealing):
    """What `scpub1…` holds."""
    return hpke_pair(sealing)[1] + u8(algorithm) + point(algorithm, seed)


def read_keytext(v):
    if v["expect"] == "member":
        check(text_of(public_keys(*secrets(v["secret"], 1)), "scpub") == v["public"], "the public keys")
    elif v["expect"] == "authority":
        _, _, veils = secrets(v["secret"], 2)
        check(data_of(v["fingerprint"], "scca") == sha256(bytes.fromhex(v["ca"])), "the fingerprint")
        veil = derive(veils, b"", b"sealcast/v1/veil of a group", b"ward3")
        check(data_of(v["veil"], "sc-secret-") == u8(3) + veil, "the group's veil")
    else:
        check(len(data_of(v["text"], "scjoin")) == 16 + 32, "a token")


# 5. Certificates, revocation lists.
def authority_of(der):
    authority = x509.load_der_x509_certificate(der)
    found = {extension.oid: extension.value for extension in authority.extensions}
    constraints, usage = found.get(x509.BasicConstraints.oid), found.get(x509.KeyUsage.oid)
    check(constraints and constraints.ca and (usage is None or usage.key_cert_sign), "an authority's certificate")
    if authority.issuer == authority.subject:
        authority.verify_directly_issued_by(authority)
    return authority


def read_certificate(v):
    certificate = Certificate(bytes.fromhex(v["der"]), authority_of(bytes.fromhex(v["ca"])))
    certificate.good_at(v["utc"])


def read_crl(v):
    authority, crl = authority_of(bytes.fromhex(v["ca"])), x509.load_der_x509_crl(bytes.fromhex(v["der"]))
    check(crl.issuer.public_bytes() == authority.subject.public_bytes(), "its issuer")
    check(crl.signature_algorithm_oid in (ED25519, ECDSA_SHA256), "its algorithm")
    check(crl.is_signature_valid(authority.public_key()), "its signature")
    found = {extension.oid: extension.value for extension in crl.extensions}
    usage = [e.value for e in authority.extensions if e.oid == x509.KeyUsage.oid]
    check(all(u.crl_sign for u in usage), "an authority that may sign lists")
    partial = x509.DeltaCRLIndicator.oid, x509.IssuingDistributionPoint.oid
    entries = [e.oid for r in crl for e in r.extensions]
    check(not any(oid in found for oid in partial) and x509.CertificateIssuer.oid not in entries, "a complete list")
    check(x509.CRLNumber.oid in found and found[x509.CRLNumber.oid].crl_number < 2**64, "its number")
    assert v["expect"] != "ok" or found[x509.CRLNumber.oid].crl_number == v["number"]
    assert v["expect"] != "ok" or {r.serial_number for r in crl} == {int(serial, 0) for serial in v["revoked"]}


# 6. Statements.
def read_statement(v):
    group = Group({"group": v.get("group", "ward3"), "suite": 1, "veil": "00" * 32, "authority": v["ca"]})
    check(group.statement(bytes.fromhex(v["bytes"])).hex() == v["id"], "its id")


# 11.2 Invitations.
def read_invite(v):
    data, (algorithm, seed, sealing) = bytes.fromhex(v["bytes"]), secrets(v["secret"], 1)
    public = hpke_pair(sealing)[1]
    check(data[:36] == b"SCI\x01" + public, "an invitation for this key")
    contents = hpke_open(sealing, b"sealcast/v1/invite", data[:36], data[36:])
    r = Reader(contents[:-64])
    group, url, ca, der, crl, policy = (r.take(r.int(4)) for _ in range(6))
    _, issued, expires = r.take(32), r.int(8), r.int(8)
    r.end()
    signed = transcript("sealcast/v1/invite", u8(algorithm) + point(algorithm, seed), public, contents[:-64])
    authority = authority_of(ca)
    check(verified(authority.public_key(), signed, contents[-64:]), "its signature")
    check(issued <= v["utc"] <= expires + 300, "its time")
    certificate = Certificate(der, authority)
    certificate.good_at(v["utc"])
    check(certificate.sealing == public, "a certificate for this key")
    check(text_of(sha256(ca), "scca") == v["fingerprint"], "the authority")
    check((group.decode(), url.decode()) == (v["group"], v["url"]), "group and URL")
    if policy:
        Group({"group": v["group"], "suite": 1, "veil": "00" * 32, "authority": ca.hex()}).statement(policy)
    if crl:
        check(x509.load_der_x509_crl(crl).is_signature_valid(authority.public_key()), "the list's signature")


def main():
    home = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    counts, wrong = {}, []
    for v in json.loads((home / "crypto/vectors/identity.json").read_text())["vectors"]:
        accepted = v["expect"] in ("ok", "member", "authority", "token", "policy") or v["expect"].startswith("eviction by")
        try:
            {"certificate": read_certificate, "crl": read_crl, "statement": read_statement, "keytext": read_keytext,
             "invite": read_invite}[v["kind"]](v)
            why = None
        except (Refused, InvalidSignature, InvalidTag, ValueError, UnicodeDecodeError) as refused:
            why = repr(refused)
        if (why is None) != accepted:
            wrong.append(f"{v['kind']} {v['name']}: {v['expect']}; here: {why or 'accepted'}")
        counts[v["kind"]] = counts.get(v["kind"], 0) + 1
    print("identity.json:", ", ".join(f"{n} of {kind}" for kind, n in counts.items()))
    if wrong:
        sys.exit("\n".join(wrong))
    print("all of it is as docs/WIRE.md says")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes identity.json: certificates, revocation lists, key texts, statements and invitations by other people's code.

    python3 crypto/vectors/identity.py > crypto/vectors/identity.json

Needs the package `cryptography` (45 or later, for repeatable ECDSA).
"""
import datetime
import hashlib
import hmac
import json

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VECTORS = []
NOW = datetime.datetime(2026, 11, 20, tzinfo=datetime.timezone.utc)
DAY = datetime.timedelta(days=1)
RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def vector(kind, name, expect, **fields):
    shown = {key: value.hex() if isinstance(value, bytes) else value for key, value in fields.items()}
    VECTORS.append({"kind": kind, "name": name, "expect": expect, **shown})


def seconds(date):
    return int(date.timestamp())


# Certificates and revocation lists.

def ed_key(n):
    return ed25519.Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)


def p256_key(n):
    return ec.derive_private_key(int.from_bytes(bytes([n]) * 32, "big"), ec.SECP256R1())


def named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def usage(*which):
    flags = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    return x509.KeyUsage(**{flag: flag in which for flag in flags})


def sign(builder, key, algorithm=None):
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else algorithm or hashes.SHA256()
    deterministic = True if isinstance(key, ec.EllipticCurvePrivateKey) else None
    return builder.sign(key, algorithm, ecdsa_deterministic=deterministic)


def der(thing):
    return thing.public_bytes(serialization.Encoding.DER)


def certificate(key, issuer_key, issuer="ward3 CA", name="robot7", uris=("urn:sealcast:ward3:both:%23",), serial=17,
                begin=NOW, end=NOW + 90 * DAY, extensions=(), algorithm=None):
    builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(issuer)).public_key(key.public_key())
    builder = builder.serial_number(serial).not_valid_before(begin).not_valid_after(end)
    if uris:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(u) for u in uris]), False)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return der(sign(builder, issuer_key, algorithm))


SIGNS = (usage("digital_signature"), True)
IS_CA = (x509.BasicConstraints(ca=True, path_length=0), True)
CA_USAGE = (usage("digital_signature", "key_cert_sign", "crl_sign"), True)


def authority(key, name="ward3 CA"):
    return certificate(key, key, name, name, (), 1, NOW, NOW + 3650 * DAY, (IS_CA, CA_USAGE))


ED, P256 = ed_key(1), p256_key(2)
ED_CA, P256_CA = authority(ED), authority(P256)


def certificates():
    def case(name, expect, ca, leaf, utc=NOW, rights=()):
        vector("certificate", name, expect, ca=ca, der=leaf, utc=seconds(utc), rights=list(rights))

    ours = ["urn:sealcast:ward3:pub:pose/+", "urn:sealcast:ward3:sub:%23"]
    case("Ed25519 under Ed25519", "ok", ED_CA, certificate(ed_key(3), ED, uris=ours, extensions=[SIGNS]), rights=ours)
    case("P-256 under P-256", "ok", P256_CA, certificate(p256_key(3), P256, uris=ours, extensions=[SIGNS]), rights=ours)
    unescaped = ["urn:sealcast:ward3:sub:a/#", "https://example.org", "urn:sealcast:attr:ward3%20CA:role=robot"]
    case("a wildcard that the issuer did not escape", "ok", P256_CA,
         certificate(p256_key(3), P256, uris=unescaped, extensions=[SIGNS]), rights=["urn:sealcast:ward3:sub:a/%23"])
    lcmsec = ["urn:lcmsec:gkexchg_g:239.255.76.67:7667:4", "urn:lcmsec:gkexchg:239.255.76.67:7667:channel1:4"]
    as_ours = ["urn:sealcast:239.255.76.67%3A7667:both:channel1"]
    case("LCMsec's, without key usage", "ok", P256_CA, certificate(p256_key(3), P256, uris=lcmsec), rights=as_ours)
    begin = datetime.datetime(2021, 9, 20, tzinfo=datetime.timezone.utc)
    case("LCMsec's samples' dates", "the certificate has expired", P256_CA,
         certificate(p256_key(3), P256, uris=lcmsec, begin=begin, end=begin + 365 * DAY))
    case("not yet", "the certificate is not valid yet", P256_CA, certificate(p256_key(3), P256), NOW - DAY)
    case("another authority of the same name", "the certificate's signature is wrong", P256_CA,
         certificate(p256_key(3), p256_key(9)))
    case("another authority", "the certificate was issued by another authority", P256_CA,
         certificate(p256_key(3), p256_key(9), issuer="other"))
    case("signed with SHA-384", "the certificate's algorithm is neither Ed25519 nor ECDSA P-256 with SHA-256", P256_CA,
         certificate(p256_key(3), P256, algorithm=hashes.SHA384()))
    p384 = ec.derive_private_key(5, ec.SECP384R1())
    case("a P-384 key", "the certificate's algorithm is neither Ed25519 nor ECDSA P-256 with SHA-256", P256_CA,
         certificate(p384, P256))
    case("key agreement only", "the certificate's key usage does not allow it to sign messages", P256_CA,
         certificate(p256_key(3), P256, extensions=[(usage("key_agreement"), True)]))
    code = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
    case("for code signing", "the certificate's key usage does not allow it to sign messages", P256_CA,
         certificate(p256_key(3), P256, extensions=[SIGNS, (code, False)]))
    case("an authority", "an authority's certificate cannot be a member's", P256_CA,
         certificate(p256_key(3), P256, extensions=[IS_CA]))
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
    case("an unknown critical extension", "the certificate has constraints that are not met or not known", P256_CA,
         certificate(p256_key(3), P256, extensions=[(unknown, True)]))
    case("a broken right", "a right or attribute in the certificate is broken", P256_CA,
         certificate(p256_key(3), P256, uris=["urn:sealcast:ward3:pub:a/#/b"]))
    case("under one that is no authority", "not the certificate of an authority", certificate(P256, P256),
         certificate(p256_key(3), P256))
    case("under one that may not sign certificates", "the certificate's key usage does not allow it to sign messages",
         certificate(P256, P256, extensions=[IS_CA, SIGNS]), certificate(p256_key(3), P256))
    old = certificate(P256, P256, "ward3 CA", "ward3 CA", (), 1, begin, begin + 365 * DAY, (IS_CA, CA_USAGE))
    case("under an expired authority", "the authority's certificate has expired", old, certificate(p256_key(3), P256))


def lists():
    def case(name, expect, ca, key, issuer="ward3 CA", extensions=(x509.CRLNumber(5),), entry=(), **more):
        builder = x509.CertificateRevocationListBuilder().issuer_name(named(issuer))
        builder = builder.last_update(NOW).next_update(NOW + DAY)
        for serial in (7, 2**100):
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW)
            for extension in entry:
                revoked = revoked.add_extension(extension, True)
            builder = builder.add_revoked_certificate(revoked.build())
        for extension in extensions:
            builder = builder.add_extension(extension, isinstance(extension, (x509.DeltaCRLIndicator, x509.IssuingDistributionPoint)))
        vector("crl", name, expect, ca=ca, der=der(sign(builder, key)), **more)

    revoked = ["7", "0x10000000000000000000000000"]
    case("Ed25519", "ok", ED_CA, ED, number=5, revoked=revoked)
    case("P-256", "ok", P256_CA, P256, number=5, revoked=revoked)
    case("another authority of the same name", "the revocation list's signature is wrong", P256_CA, p256_key(9))
    case("another authority", "the revocation list is another authority's", P256_CA, P256, issuer="other")
    case("without a number", "the revocation list has no usable number", P256_CA, P256, extensions=())
    case("with a number of 72 bits", "the revocation list has no usable number", P256_CA, P256,
         extensions=(x509.CRLNumber(2**71),))
    case("a delta list", "the revocation list is not a complete one", P256_CA, P256,
         extensions=(x509.CRLNumber(5), x509.DeltaCRLIndicator(4)))
    point = [x509.UniformResourceIdentifier("http://example.org/crl")]
    scope = x509.IssuingDistributionPoint(point, None, False, True, None, False, False)
    case("of authorities only", "the revocation list is not a complete one", P256_CA, P256,
         extensions=(x509.CRLNumber(5), scope))
    indirect = x509.CertificateIssuer([x509.DirectoryName(named("other"))])
    case("an indirect list", "the revocation list is not a complete one", P256_CA, P256, entry=(indirect,))
    no_crl = certificate(P256, P256, "ward3 CA", "ward3 CA", (), 1, NOW, NOW + DAY, (IS_CA, (usage("key_cert_sign"), True)))
    case("by a key that may not sign lists", "the revocation list's signature is wrong", no_crl, P256)


# Key texts: BIP-350.

def bech32m(kind, data):
    alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    values = [int(bits[i:i + 5], 2) for i in range(0, len(bits), 5)]
    check = 1
    expanded = [ord(c) >> 5 for c in kind] + [0] + [ord(c) & 31 for c in kind]
    for value in expanded + values + [0] * 6:
        top, check = check >> 25, (check & 0x1FFFFFF) << 5 ^ value
        for i, generator in enumerate([0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3]):
            check ^= generator if top >> i & 1 else 0
    check ^= 0x2BC830A3
    return kind + "1" + "".join(alphabet[v] for v in values + [check >> 5 * (5 - i) & 31 for i in range(6)])


def labelled(suite, salt, label, ikm):
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + ikm, "sha256")


def sealing_key(secret):
    """RFC 9180, 7.1.3: DeriveKeyPair of DHKEM(X25519, HKDF-SHA256)."""
    suite = b"KEM\x00\x20"
    return x25519.X25519PrivateKey.from_private_bytes(expanded(suite, labelled(suite, b"", b"dkp_prk", secret), b"sk", b"", 32))


def expanded(suite, prk, label, info, n):
    return hmac.digest(prk, n.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info + b"\x01", "sha256")[:n]


def hpke_seal(public, info, aad, plaintext):
    """RFC 9180, 6.1: base mode, one message, with a fixed ephemeral key; AES-256-GCM."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x02"
    ephemeral = x25519.X25519PrivateKey.from_private_bytes(bytes([11]) * 32)
    enc = ephemeral.public_key().public_bytes(*RAW)
    dh = ephemeral.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    shared = expanded(kem, labelled(kem, b"", b"eae_prk", dh), b"shared_secret", enc + public, 32)
    context = b"\x00" + labelled(suite, b"", b"psk_id_hash", b"") + labelled(suite, b"", b"info_hash", info)
    secret = labelled(suite, shared, b"secret", b"")
    key, nonce = expanded(suite, secret, b"key", context, 32), expanded(suite, secret, b"base_nonce", context, 12)
    return enc + AESGCM(key).encrypt(nonce, plaintext, aad)


def hkdf(ikm, info_parts):
    info = b"".join(len(part).to_bytes(8, "big") + part for part in info_parts)
    return hmac.digest(hmac.digest(bytes(32), ikm, "sha256"), info + b"\x01", "sha256")


SIGNING, SEALING = bytes([3]) * 32, bytes([4]) * 32
SEALING_PUBLIC = sealing_key(SEALING).public_key().public_bytes(*RAW)
MEMBER_TEXT = bech32m("sc-secret-", b"\x01\x01" + SIGNING + SEALING).upper()
AUTHORITY_TEXT = bech32m("sc-secret-", b"\x02\x01" + bytes([1]) * 32 + bytes([6]) * 32).upper()


def texts():
    ed = ed_key(3).public_key().public_bytes(*RAW)
    vector("keytext", "a member, Ed25519", "member", secret=MEMBER_TEXT,
           public=bech32m("scpub", SEALING_PUBLIC + b"\x01" + ed))
    point = p256_key(3).public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    vector("keytext", "a member, P-256", "member", public=bech32m("scpub", SEALING_PUBLIC + b"\x02" + point),
           secret=bech32m("sc-secret-", b"\x01\x02" + SIGNING + SEALING).upper())
    vector("keytext", "an authority", "authority", secret=AUTHORITY_TEXT, ca=ED_CA,
           fingerprint=bech32m("scca", hashlib.sha256(ED_CA).digest()),
           veil=bech32m("sc-secret-", b"\x03" + veil_of("ward3")).upper())
    vector("keytext", "a join token", "token", text=bech32m("scjoin", bytes(range(16)) + hashlib.sha256(ED_CA).digest()))


def veil_of(group):
    return hkdf(bytes([6]) * 32, [b"sealcast/v1/veil of a group", group.encode()])


# Statements and invitations.

def transcript(label, *parts):
    h = hashlib.sha256(b"sealcast transcript\0")
    for part in (label, *parts):
        h.update(len(part).to_bytes(8, "big") + part)
    return h.digest()


def behind(n, data):
    return len(data).to_bytes(n, "big") + data


def statement(kind, body, key, signer=b"", evicted=b""):
    member = hashlib.sha256(signer).digest() if signer else b""
    digest = transcript(b"sealcast/v1/statement", kind, hashlib.sha256(ED_CA).digest(), member, body)
    certificates = behind(2, signer) + behind(2, evicted) if signer else b""
    head = b"SC" + kind + b"\x01" + (b"\x01" if signer else b"\x00")
    return head + behind(2, body) + certificates + key.sign(digest), digest


def eviction(group, serial, certificate_hash, number, voids, reason):
    body = behind(2, group.encode()) + behind(2, serial) + certificate_hash + number.to_bytes(8, "big")
    return body + bytes([voids]) + behind(2, reason.encode())


def policy(group, number, max_age, on_stale, compartments):
    body = behind(2, group.encode()) + number.to_bytes(8, "big") + max_age.to_bytes(4, "big") + bytes([on_stale])
    body += len(compartments).to_bytes(2, "big")
    for name, patterns in compartments:
        body += behind(2, name.encode()) + len(patterns).to_bytes(2, "big")
        body += b"".join(behind(2, p.encode()) for p in patterns)
    return body


def statements():
    def case(name, expect, pair, **fields):
        vector("statement", name, expect, ca=ED_CA, bytes=pair[0], id=pair[1], **fields)

    carol = certificate(ed_key(7), ED, name="carol", uris=["urn:sealcast:ward3:both:pose/%23"], serial=18, extensions=[SIGNS])
    head = certificate(ed_key(8), ED, name="head", uris=["urn:sealcast:ward3:evict:pose/%23"], serial=19, extensions=[SIGNS])
    mate = certificate(ed_key(9), ED, name="mate", uris=["urn:sealcast:ward3:evict:other/%23"], serial=20, extensions=[SIGNS])
    hash_of_carol = hashlib.sha256(carol).digest()
    said = eviction("ward3", b"\x12", hash_of_carol, 1, 0, "lost laptop")
    fields = {"group": "ward3", "serial": "18", "certificate": hash_of_carol, "number": 1, "reason": "lost laptop"}
    case("an eviction by the authority", "eviction by ward3 CA", statement(b"E", said, ED), **fields)
    case("an eviction by a member", "eviction by head", statement(b"E", said, ed_key(8), head, carol), **fields)
    case("an eviction beyond the member's right", "its signer has no right to evict that member",
         statement(b"E", said, ed_key(9), mate, carol))
    case("an eviction by another than it says", "the statement's signature is wrong",
         statement(b"E", said, ed_key(9), head, carol))
    voiding = eviction("ward3", b"\x12", hash_of_carol, 1, 1, "")
    case("a member that voids", "the statement is malformed", statement(b"E", voiding, ed_key(8), head, carol))
    padded = eviction("ward3", b"\x00\x12", hash_of_carol, 1, 0, "")
    case("a serial written in two ways", "the statement is malformed", statement(b"E", padded, ED))
    ruled = policy("ward3", 1, 86400, 1, [("orders", ["orders/#", "stop"]), ("rest", ["#"])])
    case("a policy", "policy", statement(b"P", ruled, ED), group="ward3", number=1)
    case("a policy by a member", "only the authority signs a policy",
         statement(b"P", ruled, ed_key(8), head, carol))
    case("a compartment named twice", "the statement is malformed",
         statement(b"P", policy("ward3", 1, 0, 0, [("a", ["b"]), ("a", ["c"])]), ED))


def invitations():
    keys = b"\x01" + ed_key(3).public_key().public_bytes(*RAW), SEALING_PUBLIC
    uris = ["urn:sealcast:key:" + SEALING_PUBLIC.hex(), "urn:sealcast:ward3:both:%23"]
    leaf = certificate(ed_key(3), ED, name="newcomer", uris=uris, extensions=[SIGNS])

    def case(name, expect, leaf=leaf, key=ED, to=SEALING_PUBLIC, utc=NOW, label=b"SCI\x01"):
        url = b"udpm://239.255.76.67:7667?ttl=1&keys=contributory"
        body = b"".join(behind(4, p) for p in (b"ward3", url, ED_CA, leaf, b"", b"")) + veil_of("ward3")
        body += seconds(NOW).to_bytes(8, "big") + seconds(NOW + DAY).to_bytes(8, "big")
        contents = body + key.sign(transcript(b"sealcast/v1/invite", *keys, body))
        head = label + to
        sealed = head + hpke_seal(to, b"sealcast/v1/invite", head, contents)
        vector("invite", name, expect, secret=MEMBER_TEXT, bytes=sealed, utc=seconds(utc), group="ward3",
               url=url.decode(), fingerprint=bech32m("scca", hashlib.sha256(ED_CA).digest()))

    case("an invitation", "ok")
    case("for another key", "the invitation is for another key", to=sealing_key(bytes(32)).public_key().public_bytes(*RAW))
    case("after its time", "the invitation has expired", utc=NOW + 2 * DAY)
    case("signed by another authority", "the invitation's signature is wrong", key=ed_key(9))
    case("with another's certificate", "the invitation is for another key", leaf=certificate(ed_key(7), ED, extensions=[SIGNS]))
    case("of a later version", "this is no invitation, or a part of it is missing", label=b"SCI\x02")


certificates()
lists()
texts()
statements()
invitations()
print(json.dumps({"source": "crypto/vectors/identity.py, on the package cryptography", "vectors": VECTORS}, indent=1))

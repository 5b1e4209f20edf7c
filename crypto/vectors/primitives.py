#!/usr/bin/env python3
"""Writes primitives.json: our encodings around standard primitives, computed by other people's code.

    python3 crypto/vectors/primitives.py > crypto/vectors/primitives.json

Needs the package `cryptography`.
"""
import hashlib
import hmac
import json

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV, ChaCha20Poly1305

VECTORS = []


def vector(kind, name, expect, **fields):
    shown = {key: value.hex() if isinstance(value, bytes) else value for key, value in fields.items()}
    VECTORS.append({"kind": kind, "name": name, "expect": expect, **shown})


def transcript(hash_function, label, parts):
    h = hash_function(b"sealcast transcript\0")
    for part in (label, *parts):
        h.update(len(part).to_bytes(8, "big") + part)
    return h.digest()


def hkdf(ikm, salt, info_parts, n):
    info = b"".join(len(part).to_bytes(8, "big") + part for part in info_parts)
    prk = hmac.digest(salt or bytes(32), ikm, "sha256")
    out, block, i = b"", b"", 1
    while len(out) < n:
        block = hmac.digest(prk, block + info + bytes([i]), "sha256")
        out, i = out + block, i + 1
    return out[:n]


def changed(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def transcripts():
    for name, label, parts in [
        ("no parts", b"sealcast/v1/example", []),
        ("one empty part", b"sealcast/v1/example", [b""]),
        ("two parts", b"sealcast/v1/example", [b"ab", b"c"]),
        ("the same bytes cut elsewhere", b"sealcast/v1/example", [b"a", b"bc"]),
        ("a long part", b"", [bytes(range(256)) * 4]),
    ]:
        vector("transcript", name, "hash", label=label.decode(), parts=[p.hex() for p in parts],
               hash32=transcript(hashlib.sha256, label, parts), hash64=transcript(hashlib.sha512, label, parts))


def keys():
    for name, ikm, salt, parts in [
        ("a label alone", bytes(range(32)), b"", [b"sealcast/v1/sub"]),
        ("salt and four parts", bytes(range(32)), b"salt", [b"sealcast/v1/sub", b"group", b"", bytes(12)]),
    ]:
        vector("hkdf", name, "key", ikm=ikm, salt=salt, info=[p.hex() for p in parts], key=hkdf(ikm, salt, parts, 32))


def seals():
    header, plaintext = bytes(range(28)), b"pose/robot7 is moving"
    for suite, cipher in [("aes-256-gcm", AESGCM), ("chacha20-poly1305", ChaCha20Poly1305)]:
        key = hashlib.sha256(suite.encode()).digest()
        for counter in (0, 1, 2**32, 2**64 - 1):
            sealed = cipher(key).encrypt(bytes(4) + counter.to_bytes(8, "big"), plaintext, header)
            fields = dict(suite=suite, key=key, counter=str(counter), aad=header, plaintext=plaintext)
            vector("aead", f"{suite}, counter {counter}", "opens", sealed=sealed, **fields)
        vector("aead", f"{suite}, tag changed", "authentication failed", sealed=changed(sealed, -1 + len(sealed)), **fields)
        fields["aad"] = changed(header, 0)
        vector("aead", f"{suite}, header changed", "authentication failed", sealed=sealed, **fields)


def veils():
    secret, nonce, message = bytes(range(32)), bytes(range(12)), b"JOIN"
    public = hkdf(hashlib.sha256(b"a CA's certificate").digest(), b"", [b"sealcast/v1/veil", b"public", b"robots"], 32)

    def sealed(secret):
        tag = hkdf(secret, b"", [b"sealcast/v1/veil", b"tag"], 8)
        key = hkdf(secret, b"", [b"sealcast/v1/veil", b"key"], 32)
        return tag + nonce + AESGCMSIV(key).encrypt(nonce, message, tag)

    fields = dict(secret=secret, nonce=nonce, message=message)
    vector("veil", "of a secret", "opens", sealed=sealed(secret), **fields)
    vector("veil", "of certificate and name only", "opens", sealed=sealed(public), ca_hash=hashlib.sha256(
        b"a CA's certificate").digest(), group="robots", nonce=nonce, message=message)
    vector("veil", "changed", "authentication failed", sealed=changed(sealed(secret), 25), **fields)
    vector("veil", "cut", "authentication failed", sealed=sealed(secret)[:19], **fields)
    vector("veil", "another group's", "another group's message", sealed=sealed(public), **fields)


def trees():
    sha256 = lambda data: hashlib.sha256(data).digest()
    for count in (1, 2, 3, 5, 8, 13):
        records = [sha256(bytes([i])) for i in range(count)]

        def split(n):
            k = 1
            while 2 * k < n:
                k *= 2
            return k

        # RFC 6962 §2.1 and §2.1.1, recursively, as printed there.
        def mth(d):
            return sha256(b"\0" + d[0]) if len(d) == 1 else sha256(b"\1" + mth(d[:split(len(d))]) + mth(d[split(len(d)):]))

        def path(m, d):
            if len(d) == 1:
                return []
            k = split(len(d))
            return path(m, d[:k]) + [mth(d[k:])] if m < k else path(m - k, d[k:]) + [mth(d[:k])]

        root = sha256(b"\2" + count.to_bytes(8, "big") + mth(records))
        vector("merkle", f"{count} records", "root", records=[r.hex() for r in records], root=root,
               paths=[[p.hex() for p in path(m, records)] for m in range(count)])


for make in (transcripts, keys, seals, veils, trees):
    make()
print(json.dumps({"source": "crypto/vectors/primitives.py, on hashlib and the package cryptography", "vectors": VECTORS},
                 indent=1, ensure_ascii=False))

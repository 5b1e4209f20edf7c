#!/usr/bin/env python3
"""Writes dutta_barua.json: the ring of crypto/src/dutta_barua computed a second time, from RFC 9496 up.

    python3 crypto/vectors/dutta_barua.py > crypto/vectors/dutta_barua.json

Shares no code with the crate; slow, not constant-time, for vectors only.
"""
import hashlib
import hmac
import json

# ristretto255 (RFC 9496), on the Edwards curve -x^2 + y^2 = 1 + d x^2 y^2 over p = 2^255 - 19.
p = 2**255 - 19
q = 2**252 + 27742317777372353535851937790883648493
d = -121665 * pow(121666, -1, p) % p
SQRT_M1 = pow(2, (p - 1) // 4, p)


def is_negative(x):
    return x % p % 2 == 1


def absolute(x):
    return -x % p if is_negative(x) else x % p


def sqrt_ratio(u, v):
    r = u * pow(v, 3, p) * pow(u * pow(v, 7, p), (p - 5) // 8, p) % p
    check = v * r * r % p
    if check in (-u % p, -u * SQRT_M1 % p):
        r = r * SQRT_M1 % p
    return check in (u % p, -u % p), absolute(r)


INVSQRT_A_MINUS_D = sqrt_ratio(1, -1 - d)[1]


def decode(data):
    s = int.from_bytes(data, "little")
    if s >= p or is_negative(s):
        return None
    ss = s * s % p
    u1, u2 = (1 - ss) % p, (1 + ss) % p
    v = (-d * u1 * u1 - u2 * u2) % p
    square, invsqrt = sqrt_ratio(1, v * u2 * u2)
    den_x = invsqrt * u2 % p
    den_y = invsqrt * den_x * v % p
    x, y = absolute(2 * s * den_x), u1 * den_y % p
    return None if not square or is_negative(x * y) or y == 0 else (x, y, 1, x * y % p)


def encode(point):
    x0, y0, z0, t0 = point
    u1, u2 = (z0 + y0) * (z0 - y0) % p, x0 * y0 % p
    invsqrt = sqrt_ratio(1, u1 * u2 * u2)[1]
    den1, den2 = invsqrt * u1 % p, invsqrt * u2 % p
    z_inv = den1 * den2 * t0 % p
    if is_negative(t0 * z_inv):
        x, y, den = y0 * SQRT_M1 % p, x0 * SQRT_M1 % p, den1 * INVSQRT_A_MINUS_D % p
    else:
        x, y, den = x0, y0, den2
    if is_negative(x * z_inv):
        y = -y % p
    return absolute(den * (z0 - y)).to_bytes(32, "little")


def add(a, b):
    A, B = (a[1] - a[0]) * (b[1] - b[0]) % p, (a[1] + a[0]) * (b[1] + b[0]) % p
    C, D = 2 * d * a[3] * b[3] % p, 2 * a[2] * b[2] % p
    E, F, G, H = B - A, D - C, D + C, B + A
    return (E * F % p, G * H % p, F * G % p, E * H % p)


def negate(a):
    return (-a[0] % p, a[1], a[2], -a[3] % p)


def times(k, a):
    result = (0, 1, 1, 0)
    for bit in bin(k % q)[2:]:
        result = add(result, result)
        if bit == "1":
            result = add(result, a)
    return result


G = decode(bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76"))


# Transcripts and keys.
def transcript(hash_function, label, *parts):
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


def scalar(x):
    return (x % q).to_bytes(32, "little")


def wide(data):
    return int.from_bytes(data, "little") % q


def u32(n):
    return n.to_bytes(4, "big")


def prove(x, random, label, parts, bases):
    statement = transcript(hashlib.sha512, label, *parts)
    k = wide(hkdf(scalar(x), random, [b"DB/nonce", statement], 64))
    c = wide(transcript(hashlib.sha512, label, *parts, *(encode(times(k, base)) for base in bases)))
    return scalar(c) + scalar(k + c * x)


# The scheme.
def session(context, size, shares):
    return transcript(
        hashlib.sha256, b"sealcast/v1/db/session", b"ristretto255", context["group"].encode(),
        context["compartment"].to_bytes(2, "big"), u32(context["epoch"]), u32(context["attempt"]),
        bytes([{"setup": 1, "join": 2}[context["kind"]]]), bytes.fromhex(context["roster"]),
        bytes.fromhex(context["instance"]), u32(size), bytes([{"plain": 1, "proved": 2}[shares]]))


def seed(chain, psid, ring, joiners):
    return wide(hkdf(chain, b"", [b"DB/join", psid, ring, *joiners], 64))


def run(name, context, exponents, shares):
    n, ring = len(exponents), session(context, len(exponents), shares)
    random = [[hashlib.sha256(f"{name} {what} {i}".encode()).digest() for i in range(n)] for what in ("one", "two")]
    X = [times(x, G) for x in exponents]
    contributions = [
        encode(X[i]) + prove(exponents[i], random[0][i], b"DB/knowledge", [ring, u32(i), encode(X[i])], [G])
        for i in range(n)]
    right = [times(exponents[i], X[(i + 1) % n]) for i in range(n)]
    sent, Y = [], []
    for i in range(n):
        Y.append(add(right[i], negate(right[i - 1])))
        parts = [ring, u32(i), encode(X[i - 1]), encode(X[i]), encode(X[(i + 1) % n]), encode(Y[i])]
        base = add(X[(i + 1) % n], negate(X[i - 1]))
        proof = prove(exponents[i], random[1][i], b"DB/share", parts, [G, base]) if shares == "proved" else b""
        sent.append(encode(Y[i]) + proof)
    sk = (0, 1, 1, 0)
    for key in right:
        sk = add(sk, key)
    psid = transcript(hashlib.sha256, b"DB/transcript", ring, *map(encode, X), *map(encode, Y))
    key = hkdf(encode(sk), psid, [b"DB/key"], 32)
    confirm = hkdf(key, b"", [b"DB/confirm"], 32)
    tags = [hmac.digest(confirm, transcript(hashlib.sha256, b"DB/confirm", psid, u32(i)), "sha256") for i in range(n)]
    vector = {
        "name": name, "expect": "agree", "context": context, "shares": shares,
        "exponents": [scalar(x).hex() for x in exponents],
        "random1": [r.hex() for r in random[0]], "random2": [r.hex() for r in random[1]],
        "contributions": [c.hex() for c in contributions], "sent_shares": [s.hex() for s in sent],
        "transcript": psid.hex(), "key": key.hex(), "commitment": hkdf(key, b"", [b"com"], 32).hex(),
        "confirmations": [t.hex() for t in tags]}
    return vector, encode(sk)


def context(kind, attempt, epoch):
    roster = hashlib.sha256(f"roster {kind} {epoch}".encode()).hexdigest()
    instance = hashlib.sha256(f"instance {kind} {attempt}".encode()).hexdigest()
    return {"group": "robots/north", "compartment": 3, "epoch": epoch, "attempt": attempt, "kind": kind,
            "roster": roster, "instance": instance}


def exponents(name, n):
    return [wide(hashlib.sha512(f"{name} x {i}".encode()).digest()) for i in range(n)]


def main():
    vectors = []
    for n in (1, 2, 3, 5):
        for shares in ("plain", "proved"):
            name = f"setup of {n}, shares {shares}"
            vector, chain = run(name, context("setup", 1 + (shares == "proved"), 4), exponents(name, n), shares)
            vectors.append(vector)
    # Two joiners come to the last ring above: U_1, U_2 (the seed), U_5, J_1, J_2.
    name, where = "join of 2 to 5", context("join", 1, 5)
    joiners = [hashlib.sha256(f"joiner {j}".encode()).digest() for j in (1, 2)]
    x = exponents(name, 5)
    x[1] = seed(chain, bytes.fromhex(vectors[-1]["transcript"]), session(where, 5, "plain"), joiners)
    vector, _ = run(name, where, x, "plain")
    vector["joined"] = {"ring": vectors[-1]["name"], "joiners": [j.hex() for j in joiners]}
    vectors.append(vector)
    # What the ring of three with proved shares refuses of seat 1.
    good = next(v for v in vectors if v["name"] == "setup of 3, shares proved")
    contribution, share = good["contributions"][1], good["sent_shares"][1]
    other = good["contributions"][0]

    def refused(name, expect, message, data):
        vectors.append({"name": name, "expect": expect, "ring": good["name"], "seat": 1, message: data})

    zero, order = "00" * 32, q.to_bytes(32, "little").hex()
    refused("X is the identity", "malformed", "contribution", zero + contribution[64:])
    refused("X is not canonical", "malformed", "contribution", p.to_bytes(32, "little").hex() + contribution[64:])
    refused("X is negative", "malformed", "contribution", "01" + zero[2:] + contribution[64:])
    refused("the challenge is not reduced", "malformed", "contribution", contribution[:64] + order + contribution[128:])
    refused("the response is not reduced", "malformed", "contribution", contribution[:128] + order)
    refused("a byte is missing", "malformed", "contribution", contribution[:-2])
    refused("seat 0's contribution echoed", "unproved", "contribution", other)
    refused("another X under the proof", "unproved", "contribution", other[:64] + contribution[64:])
    refused("challenge and response swapped", "unproved", "contribution",
            contribution[:64] + contribution[128:] + contribution[64:128])
    refused("Y is the identity", "wrong share", "share", zero + share[64:])
    refused("another Y under the proof", "wrong share", "share", other[:64] + share[64:])
    refused("seat 0's share", "wrong share", "share", good["sent_shares"][0])
    refused("Y without its proof", "malformed", "share", share[:64])
    refused("Y is not canonical", "malformed", "share", p.to_bytes(32, "little").hex() + share[64:])
    source = "crypto/vectors/dutta_barua.py, which computes the scheme a second time from RFC 9496 up"
    print(json.dumps({"source": source, "vectors": vectors}, indent=1))


main()

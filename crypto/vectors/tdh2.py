#!/usr/bin/env python3
"""Writes tdh2.json: 'TDH2-VIL v1' and the threshold PRF computed a second time, from RFC 9496, RFC 9380 and SEC 1 up.

    python3 crypto/vectors/tdh2.py > crypto/vectors/tdh2.json

Shares no code with the crate; slow, not constant-time, for vectors only. Needs the package `cryptography` for AES-GCM.
"""
import hashlib
import json

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def expand_message_xmd(name, message, dst, length):
    """RFC 9380 §5.3.1."""
    new = lambda data: hashlib.new(name, data).digest()
    block, size = {"sha256": (64, 32), "sha512": (128, 64)}[name]
    dst_prime = dst + bytes([len(dst)])
    b_0 = new(bytes(block) + message + length.to_bytes(2, "big") + b"\0" + dst_prime)
    out, previous = b"", bytes(size)
    for i in range(1, -(-length // size) + 1):
        previous = new(bytes(a ^ b for a, b in zip(b_0, previous)) + bytes([i]) + dst_prime)
        out += previous
    return out[:length]


class Ristretto255:
    """RFC 9496, on -x^2 + y^2 = 1 + d x^2 y^2 over 2^255 - 19; points are (X, Y, Z, T)."""

    name, suite, order = "ristretto255", 1, "little"
    q = 2**252 + 27742317777372353535851937790883648493
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p
    sqrt_m1 = pow(2, (p - 1) // 4, p)
    identity = (0, 1, 1, 0)

    def absolute(self, x):
        return -x % self.p if x % self.p % 2 else x % self.p

    def sqrt_ratio(self, u, v):
        p = self.p
        r = u * pow(v, 3, p) * pow(u * pow(v, 7, p), (p - 5) // 8, p) % p
        check = v * r * r % p
        square = check in (u % p, -u % p)
        if check in (-u % p, -u * self.sqrt_m1 % p):
            r = r * self.sqrt_m1 % p
        return square, self.absolute(r)

    def add(self, a, b):
        p = self.p
        (x1, y1, z1, t1), (x2, y2, z2, t2) = a, b
        e, f = (y1 - x1) * (y2 - x2), (y1 + x1) * (y2 + x2)
        c, dd = 2 * t1 * t2 * self.d, 2 * z1 * z2
        e, f, g, h = f - e, dd - c, dd + c, f + e
        return e * f % p, g * h % p, f * g % p, e * h % p

    def encode(self, point):
        p = self.p
        x0, y0, z0, t0 = point
        u1, u2 = (z0 + y0) * (z0 - y0) % p, x0 * y0 % p
        invsqrt = self.sqrt_ratio(1, u1 * u2 * u2)[1]
        den1, den2 = invsqrt * u1 % p, invsqrt * u2 % p
        z_inv = den1 * den2 * t0 % p
        x, y, den = x0, y0, den2
        if t0 * z_inv % p % 2:
            invsqrt_a_minus_d = self.sqrt_ratio(1, -1 - self.d)[1]
            x, y, den = y0 * self.sqrt_m1 % p, x0 * self.sqrt_m1 % p, den1 * invsqrt_a_minus_d % p
        if x * z_inv % p % 2:
            y = -y % p
        return self.absolute(den * (z0 - y)).to_bytes(32, "little")

    def map(self, t):
        """RFC 9496 §4.3.4."""
        p, d = self.p, self.d
        sqrt_ad_minus_one = self.sqrt_ratio(-d - 1, 1)[1]
        # The RFC's SQRT_AD_MINUS_ONE is the root that is odd.
        if sqrt_ad_minus_one % 2 == 0:
            sqrt_ad_minus_one = -sqrt_ad_minus_one % p
        r = self.sqrt_m1 * t * t % p
        u = (r + 1) * (1 - d * d) % p
        v = (-1 - r * d) * (r + d) % p
        square, s = self.sqrt_ratio(u, v)
        c = -1
        if not square:
            s, c = -self.absolute(s * t) % p, r
        n = (c * (r - 1) * pow(d - 1, 2, p) - v) % p
        w0, w1, w2, w3 = 2 * s * v, n * sqrt_ad_minus_one, 1 - s * s, 1 + s * s
        return w0 * w3 % p, w2 * w1 % p, w1 * w3 % p, w0 * w2 % p

    def generator(self):
        y = 4 * pow(5, -1, self.p) % self.p
        x = self.sqrt_ratio(y * y - 1, self.d * y * y + 1)[1]
        return x, y, 1, x * y % self.p

    def hash_to_group(self, dst, message):
        uniform = expand_message_xmd("sha512", message, dst + b"ristretto255_XMD:SHA-512_R255MAP_RO_", 64)
        halves = [int.from_bytes(it, "little") & (2**255 - 1) for it in (uniform[:32], uniform[32:])]
        return self.add(self.map(halves[0] % self.p), self.map(halves[1] % self.p))

    def hash_to_scalar(self, tag, message):
        return int.from_bytes(hashlib.sha512(message).digest(), "little") % self.q


class P256:
    """SEC 1 and RFC 9380 §8.2; points are (x, y), None the identity."""

    name, suite, order = "P256", 2, "big"
    p = 2**256 - 2**224 + 2**192 + 2**96 - 1
    q = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    a, b = p - 3, 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
    identity = None

    def add(self, s, t):
        p = self.p
        if s is None or t is None:
            return s or t
        if s[0] == t[0]:
            if (s[1] + t[1]) % p == 0:
                return None
            slope = (3 * s[0] * s[0] + self.a) * pow(2 * s[1], -1, p) % p
        else:
            slope = (t[1] - s[1]) * pow(t[0] - s[0], -1, p) % p
        x = (slope * slope - s[0] - t[0]) % p
        return x, (slope * (s[0] - x) - s[1]) % p

    def encode(self, point):
        return bytes([2 + point[1] % 2]) + point[0].to_bytes(32, "big")

    def generator(self):
        return (
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
            0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        )

    def map(self, u):
        """Simplified SWU, RFC 9380 §6.6.2, Z = -10."""
        p, a, b, z = self.p, self.a, self.b, -10
        tv1 = (z * z * u**4 + z * u * u) % p
        x1 = -b * pow(a, -1, p) * (1 + pow(tv1, -1, p)) % p if tv1 else b * pow(z * a, -1, p) % p
        x2 = z * u * u * x1 % p
        for x in (x1, x2):
            gx = (x**3 + a * x + b) % p
            y = pow(gx, (p + 1) // 4, p)
            if y * y % p == gx:
                return x, -y % p if y % 2 != u % 2 else y
        raise AssertionError("one of both is a square")

    def hash_to_group(self, dst, message):
        uniform = expand_message_xmd("sha256", message, dst + b"P256_XMD:SHA-256_SSWU_RO_", 96)
        u = [int.from_bytes(it, "big") % self.p for it in (uniform[:48], uniform[48:])]
        return self.add(self.map(u[0]), self.map(u[1]))

    def hash_to_scalar(self, tag, message):
        return int.from_bytes(expand_message_xmd("sha256", message, b"CHIOS-v1/P256/" + tag, 48), "big") % self.q


def mul(group, scalar, point):
    total = group.identity
    for bit in bin(scalar % group.q)[2:]:
        total = group.add(total, total)
        if bit == "1":
            total = group.add(total, point)
    return total


def transcript(group, tag, *parts):
    head = b"CHIOS-v1/" + group.name.encode() + b"/" + bytes([len(tag)]) + tag
    return head + b"".join(len(it).to_bytes(8, "big") + it for it in parts)


def sha256(data):
    return hashlib.sha256(data).digest()


def u16(x):
    return x.to_bytes(2, "big")


def u32(x):
    return x.to_bytes(4, "big")


def u64(x):
    return x.to_bytes(8, "big")


def counted(parts):
    return u32(len(parts)) + b"".join(u64(len(it)) + it for it in parts)


class System:
    """A key (t, n) and everything that is done with it."""

    def __init__(self, group, seed, system, epoch, t, n, delta):
        self.group, self.t, self.n, self.delta, self.epoch, self.system = group, t, n, delta, epoch, system
        self.g = group.generator()
        self.a = [self.draw(b"%s/a%d" % (seed, j)) for j in range(t)]
        self.x = [sum(a * i**j for j, a in enumerate(self.a)) % group.q for i in range(n + 1)]
        self.h = [mul(group, x, self.g) for x in self.x]

    def draw(self, seed):
        return int.from_bytes(hashlib.sha512(seed).digest(), "big") % self.group.q

    def pt(self, point):
        return self.group.encode(point)

    def sc(self, x):
        return x.to_bytes(32, self.group.order)

    def hash(self, tag, *parts):
        return sha256(transcript(self.group, tag, *parts))

    def scalar(self, tag, *parts):
        return self.group.hash_to_scalar(tag, transcript(self.group, tag, *parts))

    def point(self, tag, *parts):
        return self.group.hash_to_group(b"CHIOS-v1/" + tag + b"/", transcript(self.group, tag, *parts))

    def mul(self, x, p):
        return mul(self.group, x, p)

    def key(self):
        pt = self.pt
        self.g_bar = self.point(b"gbar", self.system, pt(self.h[0]))
        self.pkh0 = self.hash(b"pk0", self.system, pt(self.h[0]), pt(self.g_bar), u64(self.delta))
        self.pkh = self.hash(
            b"pk", u32(self.n), u32(self.t), u64(self.epoch), pt(self.h[0]), pt(self.g_bar), *map(pt, self.h[1:])
        )
        self.encoded = (
            bytes([self.group.suite, len(self.system)]) + self.system + u64(self.epoch) + u16(self.t) + u16(self.n)
            + u64(self.delta) + b"".join(map(pt, self.h))
        )

    def encrypt(self, label, message, seed):
        pt, sigma, random = self.pt, seed[:32], seed[32:]
        both = hashlib.sha512(transcript(self.group, b"dem", self.pkh0, label, sigma)).digest()
        k, com = both[:32], both[32:]
        body = AESGCM(k).encrypt(bytes(12), message, label)
        digest = self.hash(b"body", com, body)
        r = self.scalar(b"r", self.pkh0, label, sigma, digest)
        s = self.scalar(b"s", self.pkh0, label, sigma, digest, random)
        u, u_bar, w, w_bar = self.mul(r, self.g), self.mul(r, self.g_bar), self.mul(s, self.g), self.mul(s, self.g_bar)
        z = self.mul(self.delta * r, self.h[0])
        masked = bytes(a ^ b for a, b in zip(sigma, self.hash(b"mask", self.pkh0, pt(u), pt(z))))
        points = [pt(it) for it in (u, u_bar, w, w_bar)]
        e = self.scalar(b"H2", self.pkh0, label, masked, digest, u64(len(body)), *points)
        f = self.sc((s + r * e) % self.group.q)
        self.ctid = self.hash(b"ctid", self.pkh0, label, masked, com, digest, *points, f)
        self.u = u
        return b"".join(points) + f + masked + com + body

    def share(self, i):
        return u16(i) + self.pt(self.mul(self.x[i], self.u))

    def prove(self, i, random):
        pt, x = self.pt, self.x[i]
        hedge = self.hash(b"hedge", self.sc(x))
        s = self.scalar(b"nonce", hedge, self.pkh, self.ctid, u32(i), random)
        u_i, u_hat, h_hat = pt(self.mul(x, self.u)), pt(self.mul(s, self.u)), pt(self.mul(s, self.g))
        e = self.scalar(b"H3", self.pkh, u32(i), self.ctid, pt(self.u), pt(self.h[i]), u_i, u_hat, h_hat)
        return u16(i) + u_i + u_hat + h_hat + self.sc((s + x * e) % self.group.q)

    def prf_key(self):
        pt = self.pt
        self.pkh0 = self.hash(b"prf-pk0", self.system, pt(self.h[0]))
        self.pkh = self.hash(
            b"prf-pk", self.pkh0, u32(self.n), u32(self.t), u64(self.epoch), *map(pt, self.h[1:])
        )

    def evaluate(self, i, m, random):
        pt, x = self.pt, self.x[i]
        hedge = self.hash(b"prf-hedge", self.sc(x))
        s = self.scalar(b"prf-nonce", hedge, self.pkh, pt(m), u32(i), random)
        y_i, m_hat, h_hat = pt(self.mul(x, m)), pt(self.mul(s, m)), pt(self.mul(s, self.g))
        e = self.scalar(b"prf-H3", self.pkh, u32(i), pt(m), pt(self.h[i]), y_i, m_hat, h_hat)
        return u16(i) + y_i + m_hat + h_hat + self.sc((s + x * e) % self.group.q)


def label():
    """Components, and L'."""
    headers = [(b"ward", b"skin"), (b"urgent", b"")]
    parts = [
        b"hospital", u64(3), b"pub", sha256(b"put stock 7"),
        u32(len(headers)) + b"".join(u64(len(t)) + t + u64(len(v)) + v for t, v in headers),
        counted([b"role = doctor"]), u64(1), u64(2),
    ]
    return counted(parts)


def main():
    vectors = []
    encoded = label()
    hashed = sha256(b"CHIOS-v1/label" + encoded)
    vectors.append({"kind": "label", "name": "eight components", "encoded": encoded.hex(), "hash": hashed.hex()})
    for group in (Ristretto255(), P256()):
        for t, n, delta in ((2, 4, 6), (3, 4, 3), (2, 4, 1)):
            name = "%s (%d, %d), Δ = %d" % (group.name, t, n, delta)
            it = System(group, name.encode(), b"vectors", 5, t, n, delta)
            it.key()
            seed = hashlib.sha512(name.encode() + b"/seed").digest()
            message = b"a record that t of n open"
            ciphertext = it.encrypt(hashed, message, seed)
            random = sha256(name.encode() + b"/random")
            vectors.append({
                "kind": "tdh2", "name": name, "suite": group.name, "key": it.encoded.hex(),
                "secrets": [it.sc(x).hex() for x in it.x[1:]], "g_bar": it.pt(it.g_bar).hex(),
                "pkh": it.pkh.hex(), "pkh0": it.pkh0.hex(), "label": encoded.hex(), "message": message.hex(),
                "seed": seed.hex(), "ciphertext": ciphertext.hex(), "ctid": it.ctid.hex(),
                "shares": [it.share(i).hex() for i in range(1, n + 1)], "random": random.hex(),
                "proved": [it.prove(i, random).hex() for i in range(1, n + 1)],
            })
        name = "%s PRF (2, 4)" % group.name
        it = System(group, name.encode(), b"vectors", 5, 2, 4, 1)
        it.prf_key()
        data, random = b"leaf 7", sha256(name.encode() + b"/random")
        m = it.point(b"prf", it.pkh0, data)
        value = hashlib.sha512(
            transcript(group, b"prf-out", it.pkh0, data, it.pt(it.mul(it.x[0], m)))
        ).hexdigest()
        vectors.append({
            "kind": "prf", "name": name, "suite": group.name, "system": "vectors", "epoch": 5,
            "h": it.pt(it.h[0]).hex(), "holders": [it.pt(h).hex() for h in it.h[1:]],
            "secrets": [it.sc(x).hex() for x in it.x[1:]], "pkh": it.pkh.hex(), "pkh0": it.pkh0.hex(),
            "input": data.hex(), "point": it.pt(m).hex(), "random": random.hex(),
            "shares": [it.evaluate(i, m, random).hex() for i in range(1, 5)], "value": value,
        })
    source = "crypto/vectors/tdh2.py: a second implementation, from RFC 9496, RFC 9380 and SEC 1 up"
    print(json.dumps({"source": source, "vectors": vectors}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()

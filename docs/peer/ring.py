"""The ring of a key agreement by section 9 of docs/WIRE.md, from RFC 9496 up."""
import hashlib
import hmac

from wire import check, derive, transcript, u8, u16, u32

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
